package jobfile

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/BurntSushi/toml"

	"ddpbatch/internal/redact"
	"ddpbatch/slurm"
)

// Parse reads a job from src, and applies the overrides to it, each "table.key=value". Faults name the file name. Relative paths start
// at dir, which must be absolute, and "~/" is the home folder of the user that this process runs as. Warnings are returned separately, with
// or without an error, which is always a Faults.
func Parse(name, dir string, src []byte, sets []string) (*Job, []Fault, error) {
	var none *Defaults
	return none.Parse(name, dir, src, sets)
}

// newChecker returns a checker for the text of one file.
func newChecker(name string, src []byte) *checker {
	return &checker{name: name, src: strings.TrimPrefix(string(src), bom), job: emptyJob()}
}

// bom is the byte order mark with which some editors begin a file.
const bom = "\ufeff"

// parse reads the file, merges the overrides into it and the result over the defaults, and checks it.
func (c *checker) parse(dir string, sets []string) (values map[string]any, root *position) {
	if values, root = c.decode(); values == nil {
		return nil, nil
	}
	c.defaults.checkForbidden(c, values, root)
	c.override(values, root, sets)
	values, root = c.defaults.beneath(values, root)
	dropAlternatives(values, root)
	if c.knowsSchema(values, root) {
		table, isSweep := values["sweep"]
		swept := c.takeSweep(values, root)
		c.checkAll(values, root, dir)
		if swept != nil {
			c.checkElements(swept, values, root, dir)
		}
		if isSweep {
			values["sweep"] = table
		}
	}
	return values, root
}

// knowsSchema checks the version of the format: a file of another version has other keys, so nothing else needs to be checked.
func (c *checker) knowsSchema(values map[string]any, root *position) bool {
	v, given := values["schema"]
	return !given || c.value(schema().keys["schema"], toml.Key{"schema"}, v, root.below("schema"))
}

// found returns the warnings, and the faults as a Faults.
func (c *checker) found() (warnings []Fault, err error) {
	warnings = c.ordered(c.warnings)
	if faults := c.ordered(c.faults); len(faults) > 0 {
		err = Faults(faults)
	}
	return warnings, err
}

// maxSize bounds a job file, in bytes.
const maxSize = 256 << 10

// Fault is an error or a warning about a job file, with its position.
type Fault struct {
	File    string `json:"file"`    // the file's name as it was given, or "--set a.b"
	Line    int    `json:"line"`    // from 1; 0 in a fault of a --set
	Column  int    `json:"column"`  // from 1, in characters; 0 in a fault of a --set
	Key     string `json:"key"`     // dotted: "slurm.nodes"; empty if the fault does not concern a key
	Message string `json:"message"` // names the key, and says what to write instead
}

// String returns "job.toml:5:1: message", which editors and terminals turn into a link. A key that --set names is not repeated.
func (f Fault) String() string {
	if f.Line == 0 && f.Key != "" && f.File == "--set "+f.Key {
		return f.where() + ": " + strings.TrimPrefix(f.Message, f.Key+": ")
	}
	return f.where() + ": " + f.Message
}

// where returns "job.toml:5:1", or "--set a.b".
func (f Fault) where() string {
	if f.Line == 0 {
		return f.File
	}
	return fmt.Sprintf("%s:%d:%d", f.File, f.Line, f.Column)
}

// Faults holds all faults of a job, in the order of the file, and then in the order
// of the overrides. If it is returned as an error, it is not empty.
type Faults []Fault

// Error returns one line for each fault.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, fault := range f {
		lines[i] = fault.String()
	}
	return strings.Join(lines, "\n")
}

// decode turns the source into generic tables, and finds the positions of its keys. It adds a fault and returns nil if
// the source is not TOML, too long or nested too deep.
func (c *checker) decode() (values map[string]any, root *position) {
	if len(c.src) > maxSize {
		c.fault(&position{}, nil, "the file is too long: %s may have at most %d KiB", c.what(), maxSize>>10)
		return nil, nil
	}
	root, deep := locate(c.src)
	if deep >= 0 {
		c.fault(&position{offset: deep}, nil, "tables and lists are nested more than %d deep here", maxDepth)
		return nil, nil
	}
	values = make(map[string]any)
	if _, err := toml.Decode(c.src, &values); err != nil {
		c.syntax(err)
		return nil, nil
	}
	return values, root
}

// what returns the kind of the file, for messages.
func (c *checker) what() string {
	if c.isPart {
		return "a file of defaults"
	}
	return "a job file"
}

// shellScript matches a text that begins as a script for a shell does.
var shellScript = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^#![^\n]*[/ ](?:ba|da|k)?sh\b`) })

// syntax adds an error of the TOML library as a fault. It uses the error's offset: its line is one too high if a line end
// was not expected.
func (c *checker) syntax(err error) {
	format := "%s"
	switch {
	case c.isPart:
	case shellScript().MatchString(c.src):
		format = `this is a script, not a job file (%s); "ddpbatch init --from ` + strings.ReplaceAll(slurm.ShellQuote(c.name), "%", "%%") +
			`" makes a job file of it`
	case !c.likeTOML():
		format = `this is not a job file, which is written in TOML (%s); "ddpbatch init" writes one to start from`
	}
	if parse, ok := errors.AsType[toml.ParseError](err); ok {
		if redact.Named(parse.LastKey) { // the message may quote the value
			parse.Message = "the value of " + parse.LastKey + " is not TOML: write it in quotes"
		} else if c.lacksQuotes(parse.Message, parse.Position.Start) {
			parse.Message += "; if the value is text, put it in quotes"
		}
		c.fault(&position{offset: parse.Position.Start}, nil, format, parse.Message)
		return
	}
	c.fault(&position{}, nil, format, err)
}

// lacksQuotes reports whether the parser's message about an offset may mean that a value has no quotes: the line has such a value.
func (c *checker) lacksQuotes(message string, offset int) bool {
	if !strings.HasPrefix(message, "expected value") && !strings.HasPrefix(message, "expected a top-level item to end") {
		return false
	}
	before := c.src[:min(max(offset, 0), len(c.src))]
	line, _, _ := strings.Cut(c.src[strings.LastIndexByte(before, '\n')+1:], "\n") // the whole line
	_, value, found := strings.Cut(line, "=")
	value = strings.TrimSpace(value)
	return found && value != "" && !strings.ContainsRune("\"'[{#", rune(value[0]))
}

// likeTOML reports whether the source may be meant as TOML: the file's name does not say otherwise, and it has a table or a key.
func (c *checker) likeTOML() bool {
	if strings.ContainsRune(c.src, 0) ||
		slices.Contains([]string{".py", ".sh", ".sbatch", ".slurm", ".json", ".yaml", ".yml"}, filepath.Ext(c.name)) {
		return false
	}
	for line := range strings.Lines(c.src) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "[") || strings.Contains(line, "=") {
			return true
		}
	}
	return false
}

// An override is one --set: "train.epochs=2".
type override struct {
	key   string // as it was typed
	path  toml.Key
	value any
	text  string // the value as it was typed
}

// override merges the overrides into the file's tables; later ones replace earlier ones. It makes missing tables
// on the way. A list can only be replaced as a whole.
func (c *checker) override(values map[string]any, root *position, sets []string) {
	for i, set := range sets {
		o, problem := parseOverride(set)
		c.sets = append(c.sets, o)
		at := &position{set: i + 1, text: o.text}
		if problem == "" {
			problem = o.apply(values, root, at)
		}
		if problem != "" {
			c.fault(at, o.path, "%s", problem)
			continue
		}
		c.defaults.checkOverride(c, o, at)
	}
}

func parseOverride(set string) (o override, problem string) {
	key, text, ok := strings.Cut(set, "=")
	o = override{key: key, path: strings.Split(key, "."), text: text}
	switch {
	case strings.ContainsAny(key, `"'`):
		return o, "write the key without quotation marks, as in --set train.optimizer.lr=0.1"
	case !ok || slices.Contains(o.path, "") || len(o.path) > maxDepth:
		return o, "write an override as --set table.key=value"
	case !utf8.ValidString(set):
		return o, "an override must be UTF-8 text"
	case len(set) > maxSize:
		return o, "the value is too long: put it into the job file, or into a file of its own"
	}
	o.value = overrideValue(text)
	return o, ""
}

// overrideValue parses what was typed after the equals sign as a TOML value. If it is not one, or is a
// bare date or time, which keys do not take, it is text.
func overrideValue(text string) any {
	src := "v = " + text
	if _, deep := locate(src); deep >= 0 {
		return text
	}
	var values map[string]any
	_, err := toml.Decode(src, &values)
	if _, isTime := values["v"].(time.Time); err != nil || len(values) != 1 || isTime {
		return text
	}
	return values["v"]
}

// apply puts the value into the tables, and its position into their positions.
func (o override) apply(values map[string]any, root, at *position) (problem string) {
	last := len(o.path) - 1
	p := root
	for i, name := range o.path[:last] {
		v, given := values[name]
		if !given {
			v = map[string]any{}
			values[name] = v
			p.put(name, &position{offset: at.offset, set: at.set})
		}
		table, ok := v.(map[string]any)
		if !ok {
			return o.path[:i+1].String() + " is not a table, so parts of it cannot be set: set it as a whole"
		}
		sub := p.below(name)
		p.put(name, sub)
		values, p = table, sub
	}
	values[o.path[last]] = o.value
	p.put(o.path[last], at)
	return ""
}

// SetKey returns the key that an argument of --set sets.
func SetKey(set string) string {
	key, _, _ := strings.Cut(set, "=")
	return strings.TrimSpace(key)
}

// IsKey reports whether a job file may have the dotted key, or a table of that name.
func IsKey(key string) bool { return nodeOf(strings.Split(key, ".")) != nil }
