package jobfile

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"ddpbatch/internal/container"
	"ddpbatch/internal/rundir"
)

// Defaults are the keys of the site's file and of the user's: what holds where a job says nothing. They also say which keys the site
// forbids. A nil *Defaults holds and forbids nothing.
type Defaults struct {
	files     []rundir.DefaultsFile // the later over the earlier
	values    map[string]any        // of all files
	root      *position
	forbidden []forbiddenKey
	freeSets  bool // overrides may have what is forbidden
}

// ParseDefaults reads files of defaults, the later over the earlier. The error is a Faults.
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

// RecordedDefaults reads the files that a run was submitted with. What the site forbade then has been seen to, and is left aside.
func RecordedDefaults(files []rundir.DefaultsFile) (*Defaults, error) {
	d, err := ParseDefaults(files...)
	if err == nil {
		d.forbidden = nil
	}
	return d, err
}

// FreeSets are the same defaults for a Parse whose overrides are not all a person's: they may have what the site forbids.
// CheckSets checks those that are.
func (d *Defaults) FreeSets() *Defaults {
	if d == nil {
		return nil
	}
	free := *d
	free.freeSets = true
	return &free
}

// Files are the files that the defaults were read from.
func (d *Defaults) Files() []rundir.DefaultsFile {
	if d == nil {
		return nil
	}
	return slices.Clone(d.files)
}

// Parse is the function Parse, with the job over the defaults, key by key: tables are merged, and all else is replaced. A fault in what the
// defaults say is told where it stands there.
func (d *Defaults) Parse(name, dir string, src []byte, sets []string) (*Job, []Fault, error) {
	return d.ParseWith(name, dir, src, sets)
}

// RunDir is where jobs make their run directories that do not say, an absolute path; empty where the defaults do not say either.
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
		return "" // the home is not known, without which no job makes one either
	}
	return abs
}

// add reads one more file, over those before.
func (d *Defaults) add(file rundir.DefaultsFile) []Fault {
	c := newChecker(file.Name, []byte(file.Text))
	c.isPart, c.defaults = true, d
	if values, root := c.decode(); values != nil {
		forbidden := c.takeForbidden(values, root, file.Site)
		d.checkForbidden(c, values, root)
		d.forbidden = append(d.forbidden, forbidden...) // a site's own file may have what it forbids to all others
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

// place is where a position in a file of defaults is, as others see it.
func (d *Defaults) place(at *position) (file string, line, column int) {
	f := d.files[at.file-1]
	line, column = lineColumn(strings.TrimPrefix(f.Text, bom), at.offset)
	return f.Name, line, column
}

// beneath lays a job's tables over those of the defaults.
func (d *Defaults) beneath(values map[string]any, root *position) (map[string]any, *position) {
	if d == nil {
		return values, root
	}
	return overlay(d.values, values, d.root, root)
}

// ownKeys are keys that each job has for itself, so that no file of defaults may have them.
var ownKeys = []string{
	"name", "workdir", "launch.command", "train", "checkpoint.resume", "slurm.array", "slurm.chain", "slurm.component", "slurm.dependency",
	"sweep",
}

// refuseOwnKeys refuses what belongs in a job file, and takes it out.
func (c *checker) refuseOwnKeys(values map[string]any, root *position) {
	for _, dotted := range ownKeys {
		key := toml.Key(strings.Split(dotted, "."))
		table, at, found := lookUp(values, root, key)
		if !found {
			continue
		}
		c.fault(at, key, "%s belongs in a job file: this file holds what many jobs have in common", nodeOf(key).show(key))
		delete(table, key[len(key)-1])
	}
}

// pathKeys are keys whose values are paths. A job's begin at its file.
var pathKeys = []string{"run_dir", "script_template", "setup.venv", "container.image"}

// checkPaths refuses paths that would lead elsewhere in the folder of each job.
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
			c.fault(at, key, "%s = %s is a relative path, and this file is for jobs in many folders: write an absolute one, "+
				"or one that begins with ~/",
				key, short(path))
		}
	}
}

// lookUp finds the table that holds a key, and where the key stands.
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

// nodeOf is the schema's node of a key; nil where it knows none.
func nodeOf(key toml.Key) *node {
	n := schema()
	for _, name := range key {
		if n = n.child(name); n == nil {
			return nil
		}
	}
	return n
}

// overlay lays the tables of one file over those of another. It changes neither, and what it returns shares no table with them.
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

// alternatives are keys of which sbatch or ddpbatch takes one. Where a later file has one of them, the others of earlier files count for
// nothing.
var alternatives = [][]string{
	{"setup.venv", "setup.conda"},
	{"slurm.mem", "slurm.mem_per_cpu", "slurm.mem_per_gpu"},
	{"slurm.requeue", "slurm.no_requeue"},
}

// dropAlternatives takes out what files of defaults say about a matter of which a later one, the job or an override has something else to
// say.
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
