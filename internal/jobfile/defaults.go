package jobfile

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"ddpbatch/internal/container"
	"ddpbatch/internal/rundir"
)

// Defaults holds the keys of the site's and the user's files of defaults, which apply if a job does not set them, and the keys that the
// site forbids. A nil *Defaults has neither.
type Defaults struct {
	files     []rundir.DefaultsFile // later ones override earlier ones
	values    map[string]any        // of all files
	root      *position
	forbidden []forbiddenKey
	freeSets  bool // overrides may set what is forbidden
}

// ParseDefaults reads files of defaults; later ones override earlier ones. The error is a Faults.
func ParseDefaults(files ...rundir.DefaultsFile) (*Defaults, error) {
	d := &Defaults{values: map[string]any{}, root: &position{}}
	var all Faults
	for _, file := range files {
		faults := d.add(file)
		all = append(all, faults...)
	}
	if len(all) > 0 {
		return nil, all
	}
	return d, nil
}

// RecordedDefaults reads the files that a run was submitted with. It ignores what the site forbade then, which was checked at submit.
func RecordedDefaults(files []rundir.DefaultsFile) (*Defaults, error) {
	d, err := ParseDefaults(files...)
	if err == nil {
		d.forbidden = nil
	}
	return d, err
}

// FreeSets returns the same defaults for a Parse with overrides that do not all come from a person: they may set what the site forbids.
// CheckSets checks those that do.
func (d *Defaults) FreeSets() *Defaults {
	if d == nil {
		return nil
	}
	free := *d
	free.freeSets = true
	return &free
}

// Files returns the files from which the defaults were read.
func (d *Defaults) Files() []rundir.DefaultsFile {
	if d == nil {
		return nil
	}
	return slices.Clone(d.files)
}

// Parse is like the function Parse, but merges the job over the defaults: it merges tables key by key, and replaces other values. A fault
// in a value from the defaults is reported at its position there.
func (d *Defaults) Parse(name, dir string, src []byte, sets []string) (*Job, []Fault, error) {
	return d.ParseWith(name, dir, src, sets)
}

// RunDir returns the absolute path of the folder in which jobs that do not set run_dir make their run directories. It is empty if the
// defaults do not set it.
func (d *Defaults) RunDir() string {
	if d == nil {
		return ""
	}
	path, _ := d.values["run_dir"].(string)
	if path == "" {
		return ""
	}
	abs, err := absolute(path, "")
	if err != nil {
		return "" // the home folder is unknown; then jobs cannot make run directories either
	}
	return abs
}

// add reads one more file, which overrides those before.
func (d *Defaults) add(file rundir.DefaultsFile) []Fault {
	c := newChecker(file.Name, []byte(file.Text))
	c.isPart, c.defaults = true, d
	if values, root := c.decode(); values != nil {
		forbidden := c.takeForbidden(values, root, file.Site)
		d.checkForbidden(c, values, root)
		d.forbidden = append(d.forbidden, forbidden...) // after checkForbidden: the site's own file may set what it forbids
		c.refuseOwnKeys(values, root)
		c.checkPaths(values, root)
		if c.knowsSchema(values, root) {
			c.table(schema(), nil, values, root)
		}
		root.moveTo(len(d.files) + 1)
		d.values, d.root = overlay(d.values, values, d.root, root)
	}
	d.files = append(d.files, file)
	return c.ordered(c.faults)
}

// place returns the file, line and column of a position in a file of defaults.
func (d *Defaults) place(at *position) (file string, line, column int) {
	f := d.files[at.file-1]
	line, column = lineColumn(strings.TrimPrefix(f.Text, bom), at.offset)
	return f.Name, line, column
}

// beneath merges a job's tables over those of the defaults.
func (d *Defaults) beneath(values map[string]any, root *position) (map[string]any, *position) {
	if d == nil {
		return values, root
	}
	return overlay(d.values, values, d.root, root)
}

// ownKeys are keys that each job must set for itself, so files of defaults may not have them.
var ownKeys = []string{
	"name", "workdir", "launch.command", "train", "checkpoint.resume", "slurm.array", "slurm.chain", "slurm.component", "slurm.dependency",
	"sweep",
}

// refuseOwnKeys adds a fault for each key that belongs in a job file, and removes the key.
func (c *checker) refuseOwnKeys(values map[string]any, root *position) {
	for _, dotted := range ownKeys {
		key := toml.Key(strings.Split(dotted, "."))
		table, at, found := lookUp(values, root, key)
		if !found {
			continue
		}
		c.fault(at, key, "%s belongs in a job file: this file is for what many jobs have in common", nodeOf(key).show(key))
		delete(table, key[len(key)-1])
	}
}

// pathKeys are keys whose values are paths. In a job file relative ones start at its folder.
var pathKeys = []string{"run_dir", "script_template", "setup.venv", "container.image"}

// checkPaths refuses relative paths, which would mean something else for each job.
func (c *checker) checkPaths(values map[string]any, root *position) {
	for _, dotted := range pathKeys {
		key := toml.Key(strings.Split(dotted, "."))
		table, at, found := lookUp(values, root, key)
		if !found {
			continue
		}
		path, isText := table[key[len(key)-1]].(string)
		if runtime, given := table["runtime"].(string); given && dotted == "container.image" {
			isText = isText && container.Config{Runtime: runtime, Image: path}.IsPath()
		}
		if isText && !filepath.IsAbs(path) && path != "~" && !strings.HasPrefix(path, "~/") {
			c.fault(at, key, "%s = %s is a relative path, but this file is for jobs in many folders: write an absolute one, "+
				"or one that begins with ~/",
				key, short(path))
		}
	}
}

// lookUp returns the table that has a key, and the key's position.
func lookUp(values map[string]any, root *position, key toml.Key) (table map[string]any, at *position, found bool) {
	table, at = values, root
	for i, name := range key {
		v, given := table[name]
		if !given {
			return nil, nil, false
		}
		at = at.below(name)
		if i == len(key)-1 {
			return table, at, true
		}
		if table, given = v.(map[string]any); !given {
			return nil, nil, false
		}
	}
	return nil, nil, false
}

// nodeOf returns the schema's node of a key, or nil if there is none.
func nodeOf(key toml.Key) *node {
	n := schema()
	for _, name := range key {
		if n = n.child(name); n == nil {
			return nil
		}
	}
	return n
}

// overlay returns the tables of over merged over those of under. It does not change them, and the result does not share tables with them.
func overlay(under, over map[string]any, underAt, overAt *position) (map[string]any, *position) {
	merged := make(map[string]any, len(under)+len(over))
	at := &position{offset: overAt.offset, depth: overAt.depth, set: overAt.set, text: overAt.text, file: overAt.file}
	put := func(name string, low, high any, lowAt, highAt *position) {
		if table, isTable := high.(map[string]any); isTable {
			below, _ := low.(map[string]any)
			high, highAt = overlay(below, table, lowAt, highAt)
		}
		merged[name] = high
		at.put(name, highAt)
	}
	for name, v := range under {
		if _, both := over[name]; !both {
			put(name, nil, v, &position{}, underAt.below(name))
		}
	}
	for name, v := range over {
		put(name, under[name], v, underAt.below(name), overAt.below(name))
	}
	return merged, at
}

// alternatives are groups of keys of which sbatch or ddpbatch accepts one. If a later file sets one of them, the others in earlier files
// have no effect.
var alternatives = [][]string{
	{"setup.venv", "setup.conda"},
	{"slurm.mem", "slurm.mem_per_cpu", "slurm.mem_per_gpu"},
	{"slurm.requeue", "slurm.no_requeue"},
}

// dropAlternatives removes keys of files of defaults for which a later file, the job or an override sets an alternative.
func dropAlternatives(values map[string]any, root *position) {
	for _, group := range alternatives {
		most := 0
		for _, dotted := range group {
			if _, at, found := lookUp(values, root, strings.Split(dotted, ".")); found {
				most = max(most, at.precedence())
			}
		}
		for _, dotted := range group {
			key := strings.Split(dotted, ".")
			if table, at, found := lookUp(values, root, key); found && at.file > 0 && at.precedence() < most {
				delete(table, key[len(key)-1])
			}
		}
	}
}
