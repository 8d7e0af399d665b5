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

// Mode says which of a worker's two streams something is for, with torchrun's numbers.
type Mode uint8

// The modes. They are bits.
const (
	None Mode = 0
	Out  Mode = 1
	Err  Mode = 2
	Both Mode = Out | Err
)

// Map gives every local rank a mode: All, where Ranks does not name it.
type Map struct {
	All   Mode         `json:"all"`
	Ranks map[int]Mode `json:"ranks,omitempty"` // by local rank
}

// Of is the mode of one local rank.
func (m Map) Of(local int) Mode {
	if mode, ok := m.Ranks[local]; ok {
		return mode
	}
	return m.All
}

// Config says where the workers' output goes. The zero value is ddpbatch's own way: a file for each
// stream, where there is a folder for them, and the console, with a prefix where Prefix says so.
type Config struct {
	// Redirects are streams that go to their file only, Tees those that go to file and console
	// (torchrun's -r and -t). Streams in neither go to both, as ddpbatch does by itself.
	Redirects, Tees Map

	LocalRanks []int // local ranks whose output the console shows; empty: all
	Ranks      []int // global ranks whose output the console shows; empty: all

	// Prefix begins each line on the console: a text with ${host}, ${rank}, ${local_rank} and ${role_name};
	// "": none. With PrefixSeveral, there is also none where the world has one rank, whose lines need no name.
	Prefix        string
	PrefixSeveral bool

	// Lines that hold one of these go, once more, to a file of all ranks (torchrun's --duplicate-stdout-filters and
	// --duplicate-stderr-filters).
	OutFilters, ErrFilters []string
}

// maxRank bounds what is taken for a rank; more is a slip of the pen.
const maxRank = 1<<20 - 1

// ParseMap reads the value of torchrun's --redirects and --tee: one mode for all local ranks ("3"), or one for each that
// has any ("0:3,12:1"); ranks that are left out have none. A rank that is named twice has its last mode. Modes: 0 none,
// 1 standard output, 2 standard error, 3 both.
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

// Named are the local ranks that the map names one by one, in ascending order; none where one mode is for all.
func (m Map) Named() []int { return slices.Sorted(maps.Keys(m.Ranks)) }

func parseMode(s string) (Mode, error) {
	if len(s) != 1 || s[0] < '0' || s[0] > '3' {
		return None, fmt.Errorf("%q is no mode: 0 (none), 1 (standard output), 2 (standard error) or 3 (both)", s)
	}
	return Mode(s[0] - '0'), nil
}

func parseRank(s string) (int, error) {
	for _, r := range s {
		if r < '0' || r > '9' { // no sign, no space: Atoi takes a sign
			return 0, notRank(s)
		}
	}
	n, err := strconv.Atoi(s)
	if err != nil || n > maxRank {
		return 0, notRank(s)
	}
	return n, nil
}

func notRank(s string) error { return fmt.Errorf("%q is no rank: a number from 0 to %d", s, maxRank) }

// DefaultPrefix labels a line with the worker that wrote it.
const DefaultPrefix = "[${host} ${rank}] "

const maxPrefix = 256 // bytes

// Worker is the worker that a stream belongs to, as a prefix may name it.
type Worker struct {
	Host            string
	Rank, LocalRank int
	Role            string // "": "default"
}

// ParsePrefix tells what is wrong with a prefix, as Config has it: macros are written ${rank} or $rank, and $$ is one
// dollar (Python's string.Template, as TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE is). Macros that are not known are errors.
func ParsePrefix(s string) error {
	if len(s) > maxPrefix {
		return fmt.Errorf("the prefix of log lines has %d bytes, more than %d", len(s), maxPrefix)
	}
	if strings.ContainsAny(s, "\n\r\x00") {
		return fmt.Errorf("the prefix of log lines %q does not stay on its line", s)
	}
	_, err := expand(s, Worker{})
	return err
}

// Label is a prefix that ParsePrefix has found good, for the lines of one worker.
func Label(prefix string, w Worker) string {
	s, err := expand(prefix, w)
	if err != nil {
		return prefix
	}
	return s
}

// macros matches each dollar, with what belongs to it.
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
			err = errors.New("the prefix of log lines: a $ is followed by no name; a dollar itself is written $$")
		default:
			err = fmt.Errorf("the prefix of log lines: there is no ${%s}; there are ${host}, ${rank}, ${local_rank} and ${role_name}", name)
		}
		return ""
	})
	return expanded, err
}

// ParseRanks reads ranks as torchrun's --local-ranks-filter has them ("0,3"), and ranges ("8-11", both included). The
// ranks come back in ascending order, each once; there are none in "", which means all of them to those who ask.
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

// ParseFilters reads the value of torchrun's --duplicate-stdout-filters and --duplicate-stderr-filters: texts between commas, in
// which two commas stand for one. An empty text, which every line holds, is left out.
func ParseFilters(s string) []string {
	const comma = "\x00" // stands for one in a text; no argument has a zero byte
	var filters []string
	for text := range strings.SplitSeq(strings.ReplaceAll(s, ",,", comma), ",") {
		if text != "" {
			filters = append(filters, strings.ReplaceAll(text, comma, ","))
		}
	}
	return filters
}
