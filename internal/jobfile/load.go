package jobfile

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"ddpbatch/internal/redact"
)

// maxSize bounds a job file, in bytes.
const maxSize = 256 << 10

// Reader reads job files. The zero value refuses paths that begin with "~/".
type Reader struct {
	// Home finds the folder that "~" stands for; it is asked only where a path needs it.
	Home func() (string, error)
}

// Parse reads a job for the user that this process runs as. See Reader.Parse.
func Parse(name, dir string, src []byte, sets []string) (*Job, []Fault, error) {
	return Reader{Home: os.UserHomeDir}.Parse(name, dir, src, sets)
}

// Parse reads a job from src, and lays the overrides over it, each "table.key=value". name is what
// faults call it; relative paths start from dir, which must be absolute. Warnings come apart, with or without an error, which is
// always a Faults.
func (r Reader) Parse(name, dir string, src []byte, sets []string) (*Job, []Fault, error) {
	c := &checker{name: name, src: strings.TrimPrefix(string(src), "\ufeff"), job: defaults()}
	if values, root := c.decode(); values != nil {
		c.override(values, root, sets)
		if c.version(values, root) {
			c.table(schema(), nil, values, root)
			c.rules(values, root)
			c.paths(root, dir, r.Home)
		}
	}
	warnings, faults := c.report()
	if len(faults) > 0 {
		return nil, warnings, Faults(faults)
	}
	return c.job, warnings, nil
}

// decode turns the source into generic tables, and finds its keys. It returns nil, and
// notes the fault, where the source is not TOML or not to be trusted.
func (c *checker) decode() (values map[string]any, root *place) {
	if len(c.src) > maxSize {
		c.fault(&place{}, nil, "a job file has at most %d KiB; is this one?", maxSize>>10)
		return nil, nil
	}
	root, deep := locate(c.src)
	if deep >= 0 {
		c.fault(&place{offset: deep}, nil, "tables and lists are nested more than %d deep here", maxDepth)
		return nil, nil
	}
	values = make(map[string]any)
	if _, err := toml.Decode(c.src, &values); err != nil {
		c.syntax(err)
		return nil, nil
	}
	return values, root
}

// syntax notes an error of the TOML library. Its line is one too high where a line end is what was not
// expected, so that the offset is what counts.
func (c *checker) syntax(err error) {
	format := "%s"
	if !c.likeTOML() {
		format = `this is no job file, which are written in TOML (%s); "ddpbatch init" writes one to start from`
	}
	var parse toml.ParseError
	if errors.As(err, &parse) {
		if redact.Named(parse.LastKey) { // the message may quote the value
			parse.Message = "the value of " + parse.LastKey + " is not TOML: write it in quotes"
		}
		c.fault(&place{offset: parse.Position.Start}, nil, format, parse.Message)
		return
	}
	c.fault(&place{}, nil, format, err)
}

// likeTOML tells whether the source may be meant for TOML: it is not some other file, by its name or by having no key at all.
func (c *checker) likeTOML() bool {
	if strings.ContainsRune(c.src, 0) || slices.Contains([]string{".py", ".sh", ".sbatch", ".slurm", ".json", ".yaml", ".yml"}, filepath.Ext(c.name)) {
		return false
	}
	for line := range strings.Lines(c.src) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "[") || strings.Contains(line, "=") {
			return true
		}
	}
	return false
}
