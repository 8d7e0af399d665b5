package slurm

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Option is one long option of sbatch: Name without the dashes ("gpus-per-node"), and
// Value as one word. Flag is true if the option has no value; then Value is empty. An Option without
// a Name asks for nothing, as for "hold = false".
type Option struct {
	Name  string `json:"name"`
	Value string `json:"value,omitempty"`
	Flag  bool   `json:"flag,omitempty"`
}

// word returns the option as sbatch takes it.
func (o Option) word() string {
	if o.Flag {
		return "--" + o.Name
	}
	return "--" + o.Name + "=" + o.Value
}

// Options is the [slurm] table of a job.
type Options struct {
	List  []Option `json:"list,omitempty"`  // in the file's order
	Extra []string `json:"extra,omitempty"` // each one word, beginning with -
	Skip  []string `json:"skip,omitempty"`  // option names, with or without dashes, that are never rendered
}

// Get returns the value of the option called name, which may be spelled as sbatch does
// ("gpus-per-node") or as job.toml does; a flag's value is empty. If an option is given
// twice, the later one counts, as for sbatch. Get ignores Skip, which affects only what
// is rendered.
func (o Options) Get(name string) (value string, ok bool) {
	name = optionName(name)
	for _, option := range o.List {
		if option.Name == name && name != "" {
			value, ok = option.Value, true
		}
	}
	return value, ok
}

// Skips reports whether the option called name is to be left out.
func (o Options) Skips(name string) bool {
	return slices.ContainsFunc(o.Skip, func(skip string) bool { return optionName(skip) == name })
}

// optionName returns the name that sbatch documents for "--mem", "mem=32G", "gpus_per_node" and the
// like.
func optionName(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "=")
	return strings.ReplaceAll(strings.TrimLeft(s, "-"), "_", "-")
}

// maxNumber bounds whole numbers: Slurm keeps them in 32 bits and gives the largest few a special meaning.
const maxNumber = math.MaxInt32

// ParseOption checks one key of [slurm] (job.toml's spelling: gpus_per_node) and its value, as
// the TOML decoder returns it (string, int64, bool, float64). The error names the key
// and says what to write instead. If sbatch does not have the option, it matches
// [ErrUnknownOption].
//
// ParseOption checks times and sizes, and keeps their spelling. For a flag that is
// false it returns an Option without a Name, which asks for nothing.
func ParseOption(key string, value any) (Option, error) {
	name := optionName(key)
	kind, known := optionTable[name]
	advice, reserved := reservedOptions[name]
	switch {
	case reserved:
		return Option{}, fmt.Errorf("key %s: it does not belong in [slurm]: %s", clip(key), advice)
	case !known:
		return Option{}, fmt.Errorf("key %s: %w; put options that a site adds to sbatch into extra, as \"--name=value\"",
			clip(key), ErrUnknownOption)
	case key != optionKey(name):
		return Option{}, fmt.Errorf("key %s: write %s", clip(key), optionKey(name))
	}
	option, err := kind.option(name, value)
	if err != nil {
		return Option{}, fmt.Errorf("key %s: %w", key, err)
	}
	return option, nil
}

// option checks a value of kind k.
func (k optionKind) option(name string, value any) (Option, error) {
	switch v := value.(type) {
	case bool:
		return k.fromBool(name, v)
	case int64:
		if err := k.checkNumber(v); err != nil {
			return Option{}, err
		}
		return Option{Name: name, Value: strconv.FormatInt(v, 10)}, nil
	case string:
		if err := k.checkText(v); err != nil {
			return Option{}, err
		}
		return Option{Name: name, Value: v}, nil
	default:
		return Option{}, k.wants()
	}
}

func (k optionKind) fromBool(name string, v bool) (Option, error) {
	switch k {
	case flagValue, optionalValue:
		if !v {
			return Option{}, nil
		}
		return Option{Name: name, Flag: true}, nil
	case yesNoValue:
		return Option{Name: name, Value: map[bool]string{true: "yes", false: "no"}[v]}, nil
	case zeroOneValue:
		return Option{Name: name, Value: map[bool]string{true: "1", false: "0"}[v]}, nil
	}
	return Option{}, k.wants()
}

func (k optionKind) checkNumber(v int64) error {
	least := int64(0)
	switch k {
	case textValue, flagValue, yesNoValue:
		return k.wants()
	case countValue:
		least = 1
	case optionalValue: // --nice
		least = -maxNumber
	case zeroOneValue:
		if v > 1 {
			return k.wants()
		}
	}
	if v < least || v > maxNumber {
		return fmt.Errorf("%d is out of range: write a number from %d to %d", v, least, int64(maxNumber))
	}
	return nil
}

func (k optionKind) checkText(v string) error {
	switch k {
	case countValue, zeroCount, flagValue, zeroOneValue:
		return k.wants()
	case yesNoValue:
		if v != "yes" && v != "no" {
			return k.wants()
		}
	case sizeValue:
		if err := checkSize(v); err != nil {
			return err
		}
	case timeValue:
		if _, err := ParseTime(v); err != nil {
			return err
		}
	}
	if strings.TrimSpace(v) == "" {
		return errors.New("it is empty; remove the key")
	}
	return checkWord(v)
}

// wants returns an error that says what to write for a value of kind k.
func (k optionKind) wants() error {
	return errors.New("write " + [...]string{
		textValue:     "text in quotes",
		numberOrText:  "a whole number, or text in quotes",
		countValue:    "a whole number from 1, without quotes",
		zeroCount:     "a whole number from 0, without quotes",
		sizeValue:     `a size in quotes, such as "32G", or a whole number of MiB`,
		timeValue:     `a time in quotes, such as "01:30:00", or a whole number of minutes`,
		flagValue:     "true or false, without quotes",
		optionalValue: "true or false, or a value in quotes",
		yesNoValue:    `"yes" or "no"`,
		zeroOneValue:  "0 or 1, without quotes",
	}[k])
}

// keyOptions are the options that ddpbatch reads as keys of [slurm]. They must not
// be among the extra words.
var keyOptions = map[string]bool{"nodes": true, "array": true, "cpus-per-task": true, "clusters": true}

// shortOptions are sbatch's one-letter spellings of what ddpbatch sets or reads.
var shortOptions = map[byte]string{
	'J': "job-name", 'D': "chdir", 'o': "output", 'e': "error", 'W': "wait", 'Q': "quiet", 'n': "ntasks",
	'h': "help", 'V': "version", 'N': "nodes", 'a': "array", 'c': "cpus-per-task",
	'M': "clusters",
}

// letterOptions are the other one-letter spellings (sbatch(1), 22.05 to 26.05).
var letterOptions = map[byte]string{
	'A': "account", 'B': "extra-node-info", 'b': "begin", 'C': "constraint", 'd': "dependency", 'F': "nodefile", 'G': "gpus",
	'H': "hold", 'i': "input", 'k': "no-kill", 'L': "licenses", 'm': "distribution", 'O': "overcommit", 'p': "partition",
	'q': "qos", 's': "oversubscribe", 'S': "core-spec", 't': "time", 'v': "verbose", 'w': "nodelist", 'x': "exclude",
}

// shortFlags are the one-letter options without a value: another letter may follow in the same word.
const shortFlags = "HOsv"

// CheckExtra checks one word that is passed to sbatch unchanged (slurm.extra in a job file): it
// must be an option, fit on one line, and not be one that ddpbatch sets or reads itself, not even
// abbreviated, as sbatch accepts abbreviations.
func CheckExtra(word string) error {
	if err := checkWord(word); err != nil {
		return fmt.Errorf("sbatch option %s: %w", clip(word), err)
	}
	name := extraName(word)
	if name == "" {
		return fmt.Errorf(`sbatch option %s: it must be one word that begins with a dash, such as "--switches=1"`, clip(word))
	}
	if keyOptions[name] {
		return fmt.Errorf("sbatch option %s: write it as %s = ... in [slurm]", clip(word), optionKey(name))
	}
	if advice, reserved := reservedOptions[name]; reserved && name != "extra" {
		return fmt.Errorf("sbatch option %s: it does not belong here: %s", clip(word), advice)
	}
	if whole := abbreviated(name); whole != "" && strings.HasPrefix(word, "--") {
		return fmt.Errorf("sbatch option %s: sbatch may read it as --%s, which does not belong here; write the option in full", clip(word),
			whole)
	}
	return nil
}

// CheckAgentWords refuses words of sbatch's command line that count GPUs by tasks or sockets. In agent mode a node has one task, so its
// ranks would share the GPUs that are meant for one rank, or would not see each other's GPUs.
func CheckAgentWords(words []string) error {
	for _, word := range words {
		for _, key := range []string{"gpus_per_task", "gpus_per_socket", "tres_per_task"} {
			if Sets(word, key) && (key != "tres_per_task" || strings.Contains(word, "gpu")) {
				return fmt.Errorf(`sbatch option %s: with launch.mode = "agent" srun starts one task a node, so the option would `+
					"count once for all ranks of a node; set slurm.gpus_per_node instead", clip(word))
			}
		}
	}
	return nil
}

// Sets reports whether a word of sbatch's command line may set the option with the given key of [slurm]: by its name, an abbreviation of
// the name, or its letter.
func Sets(word, key string) bool {
	whole := optionName(key)
	name := extraName(word)
	if len(name) == 1 && letterOptions[name[0]] != "" {
		name = letterOptions[name[0]]
	}
	if _, known := optionTable[name]; !known && name != "" && strings.HasPrefix(word, "--") {
		return strings.HasPrefix(whole, name)
	}
	return name == whole || !strings.HasPrefix(word, "--") && hasFlag(word, whole)
}

// Skips reports whether an item of slurm.skip leaves out the option with the given key of [slurm].
func Skips(item, key string) bool { return optionName(item) == optionName(key) }

// hasFlag reports whether the option is among the one-letter flags at the beginning of a word.
func hasFlag(word, name string) bool {
	for _, letter := range []byte(strings.TrimPrefix(word, "-")) {
		if !strings.ContainsRune(shortFlags, rune(letter)) {
			return false
		}
		if letterOptions[letter] == name {
			return true
		}
	}
	return false
}

// extraName returns the long name of the option that word sets, or its letter if ddpbatch does not set or read
// that option. It is "" if word is not an option.
func extraName(word string) string {
	if long, found := strings.CutPrefix(word, "--"); found {
		name, _, _ := strings.Cut(long, "=")
		return name
	}
	letters, found := strings.CutPrefix(word, "-")
	if !found || letters == "" {
		return ""
	}
	rest := strings.TrimLeft(letters, shortFlags)
	if rest == "" {
		return letters[:1]
	}
	if name := shortOptions[rest[0]]; name != "" {
		return name
	}
	return rest[:1]
}

// abbreviated returns the option, among those that ddpbatch sets or reads, that sbatch may understand
// name to mean, since getopt_long(3) completes abbreviated names. It returns "" if there is none.
func abbreviated(name string) string {
	if _, known := optionTable[name]; known || name == "extra" {
		return ""
	}
	for _, whole := range slices.Concat(slices.Sorted(maps.Keys(reservedOptions)), slices.Sorted(maps.Keys(keyOptions))) {
		if strings.HasPrefix(whole, name) {
			return whole
		}
	}
	return ""
}
