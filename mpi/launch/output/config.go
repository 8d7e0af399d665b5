package output

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"ddpbatch/internal/text"
)

// Mode is a set of a worker's two streams, with torchrun's numbers.
type Mode uint8

// The modes. They are bits.
const (
	None Mode = 0
	Out  Mode = 1
	Err  Mode = 2
	Both Mode = Out | Err
)

// Map gives every local rank a mode: that of Ranks, or All if Ranks does not name it.
type Map struct {
	All   Mode         `json:"all"`
	Ranks map[int]Mode `json:"ranks,omitempty"` // by local rank
}

// Of returns the mode of one local rank.
func (m Map) Of(local int) Mode {
	if mode, ok := m.Ranks[local]; ok {
		return mode
	}
	return m.All
}

// Config is where the workers' output goes. The zero value is ddpbatch's default: a file for each stream, if there is a folder for
// them, and the console, with Prefix before each line if it is set.
type Config struct {
	// Redirects are streams that go to their file only, Tees those that go to file and console (torchrun's -r and -t). Streams in
	// neither go to both, which is ddpbatch's default.
	Redirects, Tees Map

	LocalRanks []int // local ranks whose output the console shows; empty: all
	Ranks      []int // global ranks whose output the console shows; empty: all

	// Prefix begins each line on the console: a text with ${host}, ${rank}, ${local_rank} and ${role_name}; "": no prefix. With
	// PrefixSeveral, a world of one rank has no prefix either: its lines need no name.
	Prefix        string
	PrefixSeveral bool

	// Lines that contain one of these texts go to a file of all ranks as well (torchrun's --duplicate-stdout-filters and
	// --duplicate-stderr-filters).
	OutFilters, ErrFilters []string
}

// maxRank is the highest number that is accepted as a rank. A higher one must be a typing error.
const maxRank = 1<<20 - 1

// ParseMap parses the value of torchrun's --redirects and --tee: one mode for all local ranks ("3"), or one for each rank that has
// a mode ("0:3,12:1"). Ranks that are left out have mode 0. A rank that is named twice has its last mode. The modes are 0 (none), 1
// (standard output), 2 (standard error) and 3 (both).
func ParseMap(s string) (Map, error) {
	if !strings.Contains(s, ":") {
		mode, err := parseMode(s)
		if err != nil {
			return Map{}, fmt.Errorf("%q: %w", s, err)
		}
		return Map{All: mode}, nil
	}
	m := Map{Ranks: map[int]Mode{}}
	for _, pair := range strings.Split(s, ",") {
		rank, mode, ok := strings.Cut(pair, ":")
		if !ok {
			return Map{}, fmt.Errorf("%q: %q is not RANK:MODE, as in 0:3,1:1", s, pair)
		}
		r, err := parseRank(rank)
		if err != nil {
			return Map{}, fmt.Errorf("%q: %w", s, err)
		}
		if m.Ranks[r], err = parseMode(mode); err != nil {
			return Map{}, fmt.Errorf("%q: %w", s, err)
		}
	}
	return m, nil
}

// Named lists the local ranks that the map names, in ascending order. It is empty if one mode is for all.
func (m Map) Named() []int { return slices.Sorted(maps.Keys(m.Ranks)) }

func parseMode(s string) (Mode, error) {
	if len(s) != 1 || s[0] < '0' || s[0] > '3' {
		return None, fmt.Errorf("%q is not a mode: write 0 (none), 1 (standard output), 2 (standard error) or 3 (both)", s)
	}
	return Mode(s[0] - '0'), nil
}

func parseRank(s string) (int, error) {
	for _, r := range s {
		if r < '0' || r > '9' { // signs are not allowed, but Atoi accepts them
			return 0, notRank(s)
		}
	}
	n, err := strconv.Atoi(s)
	if err != nil || n > maxRank {
		return 0, notRank(s)
	}
	return n, nil
}

func notRank(s string) error {
	return fmt.Errorf("%q is not a rank: write a number from 0 to %d", s, maxRank)
}

// DefaultPrefix labels a line with the worker that wrote it.
const DefaultPrefix = "[${host} ${rank}] "

const maxPrefix = 256 // bytes

// Worker is the worker that a stream belongs to, as a prefix may name it.
type Worker struct {
	Host            string
	Rank, LocalRank int
	Role            string // "": "default"
}

// ParsePrefix reports what is wrong with a prefix for Config. Macros are written ${rank} or $rank, and $$ is one dollar (the syntax
// of Python's string.Template, as in TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE). Unknown macros are errors.
func ParsePrefix(s string) error {
	if len(s) > maxPrefix {
		return fmt.Errorf("the prefix of log lines has %d bytes, more than %d", len(s), maxPrefix)
	}
	if strings.ContainsAny(s, "\n\r\x00") {
		return fmt.Errorf("the prefix of log lines %q must not contain a line break or a zero byte", s)
	}
	_, err := expand(s, Worker{})
	return err
}

// Label expands a prefix, which must be valid for ParsePrefix, for the lines of one worker.
func Label(prefix string, w Worker) string {
	s, err := expand(prefix, w)
	if err != nil {
		return prefix
	}
	return s
}

// macros matches each dollar, with the macro after it.
var macros = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\$(?:\$|\{[^}]*\}|[A-Za-z_][A-Za-z_0-9]*|\{)?`) })

func expand(s string, w Worker) (expanded string, err error) {
	values := map[string]string{
		"host": text.Clean(w.Host), "rank": strconv.Itoa(w.Rank), "local_rank": strconv.Itoa(w.LocalRank),
		"role_name": text.Clean(cmp.Or(w.Role, "default")),
	}
	expanded = macros().ReplaceAllStringFunc(s, func(found string) string {
		name, braced := strings.CutPrefix(found[1:], "{")
		if braced {
			name = strings.TrimSuffix(name, "}")
		}
		value, known := values[name]
		switch {
		case found == "$$":
			return "$"
		case known || err != nil:
			return value
		case found == "${":
			err = errors.New("the prefix of log lines: a ${ has no }")
		case found == "$":
			err = errors.New("the prefix of log lines: a $ must be followed by a name; write a dollar itself as $$")
		default:
			err = fmt.Errorf("the prefix of log lines: unknown macro ${%s}; write ${host}, ${rank}, ${local_rank} or ${role_name}", name)
		}
		return ""
	})
	return expanded, err
}

// ParseRanks parses ranks as in torchrun's --local-ranks-filter ("0,3"), and ranges ("8-11", both included). It returns the ranks
// in ascending order, each once. For "" it returns none, which callers take for all ranks.
func ParseRanks(s string) ([]int, error) {
	if s == "" {
		return nil, nil
	}
	seen := map[int]bool{}
	named := 0
	for _, part := range strings.Split(s, ",") {
		low, high, isRange := strings.Cut(strings.TrimSpace(part), "-")
		first, err := parseRank(low)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", s, err)
		}
		last := first
		if isRange {
			if last, err = parseRank(high); err != nil {
				return nil, fmt.Errorf("%q: %w", s, err)
			}
		}
		if last < first {
			return nil, fmt.Errorf("%q: the range %s ends before it begins", s, strings.TrimSpace(part))
		}
		if named += last - first + 1; named > maxRank+1 {
			return nil, fmt.Errorf("%q names more ranks than there can be (%d)", s, maxRank+1)
		}
		for rank := first; rank <= last; rank++ {
			seen[rank] = true
		}
	}
	return slices.Sorted(maps.Keys(seen)), nil
}

// ParseFilters parses the value of torchrun's --duplicate-stdout-filters and --duplicate-stderr-filters: texts separated by commas.
// Two commas stand for a comma in a text. Empty texts, which every line contains, are left out.
func ParseFilters(s string) []string {
	const comma = "\x00" // stands for a comma in a text; arguments cannot contain a zero byte
	var filters []string
	for text := range strings.SplitSeq(strings.ReplaceAll(s, ",,", comma), ",") {
		if text != "" {
			filters = append(filters, strings.ReplaceAll(text, comma, ","))
		}
	}
	return filters
}
