package jobfile

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"

	"ddpbatch/internal/container"
	"ddpbatch/internal/rundir"
	words "ddpbatch/internal/text"
	"ddpbatch/mpi/launch/recovery"
	"ddpbatch/slurm"
)

// docRow is a row of one of the tables in docs/job whose first column is headed "key".
type docRow struct {
	place string // "slurm.md:12"
	key   string // dotted; setup.env.NAME stands for setup.env.*
	cells map[string]string
}

// page returns the text of a page of docs/job.
func page(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func pages(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("..", "..", "docs", "job", "*.md"))
	if err != nil || len(paths) < 10 {
		t.Fatalf("pages of docs/job: %q, %v", paths, err)
	}
	return paths
}

var codeCell = regexp.MustCompile("^`([^`]+)`$")

func cellsOf(line string) []string {
	cells := strings.Split(strings.Trim(line, "|"), "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	return cells
}

func docRows(t *testing.T) (rows []docRow) {
	t.Helper()
	for _, path := range pages(t) {
		var heads []string // nil: outside such a table
		for i, line := range strings.Split(page(t, path), "\n") {
			cells := cellsOf(line)
			switch {
			case !strings.HasPrefix(line, "|"):
				heads = nil
			case cells[0] == "key":
				heads = cells
			case heads != nil && !strings.HasPrefix(line, "|---"):
				r := docRow{place: filepath.Base(path) + ":" + strconv.Itoa(i+1), cells: map[string]string{}}
				if len(cells) != len(heads) {
					t.Fatalf("%s has %d cells below %d headings", r.place, len(cells), len(heads))
				}
				for at, head := range heads {
					r.cells[head] = cells[at]
				}
				if key := codeCell.FindStringSubmatch(cells[0]); key != nil {
					r.key = key[1]
				} else {
					t.Errorf("%s: the first cell is not one key", r.place)
				}
				rows = append(rows, r)
			}
		}
	}
	return rows
}

// path returns the key of a row as the schema names it.
func (r docRow) path() toml.Key {
	return strings.Split(strings.Replace(r.key, "setup.env.NAME", "setup.env.*", 1), ".")
}

// tomlOf parses a cell that holds a TOML value.
func tomlOf(cell string) (v any, text string, err error) {
	code := codeCell.FindStringSubmatch(cell)
	if code == nil {
		return nil, "", errors.New("it is not a value between backticks")
	}
	var values map[string]any
	_, err = toml.Decode("v = "+code[1], &values)
	return values["v"], code[1], err
}

// keysBelow returns the dotted keys of n that hold values, without those in lists of tables.
func keysBelow(n *node, key string) []string {
	switch {
	case n.read != nil:
		return []string{key}
	case n.item != nil:
		return nil
	}
	var keys []string
	for name, child := range n.keys {
		keys = append(keys, keysBelow(child, strings.TrimPrefix(key+"."+name, "."))...)
	}
	if n.any != nil {
		keys = append(keys, key+".*")
	}
	slices.Sort(keys)
	return keys
}

// TestDocsHaveEveryKey: the tables of docs/job have a row for every key of a job file, and for nothing else.
func TestDocsHaveEveryKey(t *testing.T) {
	want := keysBelow(schema(), "")
	seen := map[string]string{}
	for _, r := range docRows(t) {
		key := strings.Join(r.path(), ".")
		if before := seen[key]; before != "" {
			t.Errorf("%s: %s has a row at %s already", r.place, key, before)
		}
		seen[key] = r.place
		if !slices.Contains(want, key) {
			t.Errorf("%s has a row for %s, and there is no such key", r.place, key)
		}
	}
	for _, key := range want {
		if seen[key] == "" {
			t.Errorf("docs/job has no row for %s", key)
		}
	}
}

// TestDocsListKeysOfComponents: components.md lists the keys of a component, and nothing else.
func TestDocsListKeysOfComponents(t *testing.T) {
	_, rest, begins := strings.Cut(page(t, filepath.Join("..", "..", "docs", "job", "components.md")), "\n## Keys of a component\n")
	section, _, _ := strings.Cut(rest, "\n## ")
	list, _, _ := strings.Cut(strings.TrimSpace(section), "\n\n")
	if !begins {
		t.Fatal("components.md has no section with the keys")
	}
	var got []string
	for _, span := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(list, -1) {
		got = append(got, span[1])
	}
	want := slices.Concat([]string{"nproc_per_node"}, slurm.ComponentKeys())
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("components.md lists\n%q\nand the keys are\n%q", got, want)
	}
}

// trainOf returns overrides with which the built-in trainer trains a model on one kind of data.
func trainOf(data string, more ...string) []string {
	return append([]string{"train.data.kind=" + data}, more...)
}

// docBases returns jobs as overrides of an empty file. What a page shows must be valid in one of them, because many keys are valid only
// with some others.
func docBases() [][]string {
	generated := trainOf("generated", "train.loss=mse", "train.model.kind=mlp")
	mnist := trainOf("mnist", "train.data.images=i", "train.data.labels=l", "train.data.train=0:9000", "train.data.eval=9000:10000")
	with := func(base []string, more ...string) []string { return slices.Concat(base, more) }
	return [][]string{
		{`launch.command=["true"]`},
		generated,
		{`launch.command=["true"]`, "launch.mode=task"},
		{`launch.command=["true"]`, "slurm.nodes=4", "slurm.cpus_per_task=2"},
		{`launch.command=["true"]`, "container.runtime=podman", "container.image=a"},
		{`launch.command=["true"]`, "container.runtime=charliecloud", "container.image=/a"},
		{`launch.command=["true"]`, "code.snapshot=git"},
		{`launch.command=["true"]`, `sweep.setup.env.LR=[1, 2]`},
		with(mnist, "train.model.kind=mlp", "train.evaluate.best=accuracy"),
		with(mnist, "train.model.kind=cnn", "train.model.batch_norm=true"),
		with(mnist, "train.model.kind=mlp", "train.mode=dp", "train.ddp.average_every=4"),
		trainOf("cifar10", `train.data.files=["a"]`, "train.model.kind=cnn"),
		trainOf("csv", "train.data.path=a", "train.model.kind=mlp"),
		trainOf("npy", "train.data.inputs=a", "train.data.targets=b", "train.model.kind=mlp"),
		trainOf("text", "train.data.path=a", "train.model.kind=gpt", "train.model.heads=1"),
		with(generated, "train.mode=dp"),
		with(generated, "train.pipeline=4"),
		with(generated, "train.optimizer.kind=adam"),
		with(generated, "train.optimizer.momentum=0.9"),
		with(generated, "train.schedule.kind=step"),
		with(generated, "train.schedule.kind=cosine"),
		with(generated, "train.ddp.average_every=4"),
		with(generated, "checkpoint.local=/a"),
	}
}

// parsesOf returns the error of a text with each of docBases, or nil where it is valid.
func parsesOf(src string, last ...string) (all []error) {
	for _, base := range docBases() {
		if len(last) > 0 && strings.HasPrefix(last[0], "train.") && strings.HasPrefix(base[0], "launch.command=") {
			continue // beside a command, [train] is not checked
		}
		_, _, err := Parse("job.toml", "/jobs", []byte(src), slices.Concat([]string{"name=x"}, base, last))
		all = append(all, err)
	}
	return all
}

// refusal returns nil if a text is valid with one of docBases, and otherwise the errors.
func refusal(src string, last ...string) error {
	all := parsesOf(src, last...)
	if slices.Contains(all, nil) {
		return nil
	}
	slices.SortFunc(all, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	return errors.Join(slices.CompactFunc(all, func(a, b error) bool { return a.Error() == b.Error() })...)
}

// TestDocsRowsAreTrue compares types, defaults and examples in docs/job with the schema.
func TestDocsRowsAreTrue(t *testing.T) {
	for _, r := range docRows(t) {
		key := r.path()
		n := nodeOf(key)
		if n == nil || n.read == nil {
			continue // TestDocsHaveEveryKey reports this
		}
		if last := len(key) - 1; key[last] == "*" {
			key[last] = "NAME"
		}
		t.Run(r.key, func(t *testing.T) {
			for head, cell := range r.cells {
				if len(cell) > 120 {
					t.Errorf("%s: the %s has %d bytes: 120 at most", r.place, head, len(cell))
				}
			}
			if len(n.kinds) > 0 && !strings.HasPrefix(r.cells["meaning"], strings.Join(n.kinds, ", ")+": ") {
				t.Errorf("%s: the meaning of a key of %s begins with that", r.place, n.kinds)
			}
			r.checkExample(t, key, n)
			r.checkType(t, key, n)
			if _, given := r.cells["default"]; given || !strings.HasPrefix(r.key, "slurm.") {
				r.checkDefault(t, key, n)
			}
		})
	}
}

// checkExample wants a value that a job accepts.
func (r docRow) checkExample(t *testing.T, key toml.Key, n *node) {
	v, text, err := tomlOf(r.cells["example"])
	if err == nil {
		err = n.read(emptyJob(), key, v)
	}
	if err != nil {
		t.Errorf("%s: the example: %v", r.place, err)
		return
	}
	if err := refusal("", strings.Join(key, ".")+"="+text); err != nil {
		t.Errorf("%s: no job takes the example %s:\n%v", r.place, text, err)
	}
}

var wholeFrom = regexp.MustCompile(`^whole number from (\d+)(?: to (\d+))?$`)

// checkType wants the type that the reader of the key gives. For whole numbers that the trainer bounds, the page gives the lower bound.
func (r docRow) checkType(t *testing.T, key toml.Key, n *node) {
	q := n.ask(key)
	want := cmp.Or(q.takes, words.Choice(q.words))
	got := r.cells["type"]
	bounds := wholeFrom.FindStringSubmatch(got)
	switch {
	case want == "":
		t.Errorf("the reader of %s does not say its type", r.key)
	case want == "whole number" && bounds == nil && r.key != "schema":
		t.Errorf("%s: the type is %q: say from which number on", r.place, got)
	case want != "whole number" && got != want:
		t.Errorf("%s: the type is %q, want %q", r.place, got, want)
	}
	if bounds == nil {
		return
	}
	takes := func(n int) bool {
		return slices.ContainsFunc(parsesOf("", r.key+"="+strconv.Itoa(n)), func(err error) bool {
			var faults Faults
			errors.As(err, &faults) // faults of other keys come from a base that does not fit this key
			return !slices.ContainsFunc(faults, func(f Fault) bool { return f.Key == r.key })
		})
	}
	least, _ := strconv.Atoi(bounds[1])
	if !takes(least) || takes(least-1) {
		t.Errorf("%s: the type is %q: %d is taken: %v, %d is taken: %v", r.place, got, least, takes(least), least-1, takes(least-1))
	}
	if most, err := strconv.Atoi(bounds[2]); err == nil && (!takes(most) || takes(most+1)) {
		t.Errorf("%s: the type is %q: %d is taken: %v, %d is taken: %v", r.place, got, most, takes(most), most+1, takes(most+1))
	}
}

// effective returns what a job does for a key that is unset in the empty job and still has a default.
func effective(key string) func(*Job) any {
	switch key {
	case "slurm.nodes":
		return func(j *Job) any { return j.Nodes() }
	case "slurm.chain":
		return func(j *Job) any { return j.Links() }
	case "sweep.mode":
		return func(j *Job) any { return sweepOf(j).Mode }
	case "container.gpus":
		return func(j *Job) any { return cmp.Or(j.Container.GPUs, container.AutoGPUs) }
	}
	if cause, isMax := strings.CutPrefix(key, "requeue.max."); isMax {
		return func(j *Job) any {
			j.Requeue.On = recovery.Causes()
			return j.Requeue.Budget(recovery.Cause(cause))
		}
	}
	return fields
}

// fields returns the fields of a job that are set, as in JSON.
func fields(j *Job) any {
	text, err := json.Marshal(j)
	if err != nil {
		return err
	}
	var all map[string]any
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	return all
}

// checkDefault wants "needed", the value that changes nothing in the job of an empty file, or words if no such value exists.
func (r docRow) checkDefault(t *testing.T, key toml.Key, n *node) {
	cell := r.cells["default"]
	of := effective(r.key)
	changesNothing := func(v any) bool {
		j := emptyJob()
		return n.read(j, key, v) == nil && reflect.DeepEqual(of(j), of(emptyJob()))
	}
	if n.need || cell == "needed" {
		if n.need != (cell == "needed") && key[0] != "container" { // another rule needs two keys of [container]
			t.Errorf("%s: the default is %q, and the key is needed: %v", r.place, cell, n.need)
		}
		return
	}
	if v, text, err := tomlOf(cell); err == nil {
		if !changesNothing(v) {
			t.Errorf("%s: the default is not %s", r.place, text)
		}
		return
	}
	if strings.HasPrefix(cell, "`") || cell == "" {
		t.Errorf("%s: the default %q is neither a value nor words", r.place, cell)
	}
	for value, v := range map[string]any{"0": int64(0), `""`: "", "false": false, "[]": []any{}} {
		if changesNothing(v) {
			t.Errorf("%s: the default is %q, and is `%s`", r.place, cell, value)
		}
	}
	example, _, _ := tomlOf(r.cells["example"])
	j := emptyJob()
	if err := n.read(j, key, example); err != nil || r.key == "requeue.lead" { // its default is computed from slurm.time
		return
	}
	if old := changed("", fields(emptyJob()), fields(j)); old != nil {
		t.Errorf("%s: the default is %q, and is %v", r.place, cell, old)
	}
}

// changed returns the first value in old for which new has a different value that is not empty.
func changed(at string, old, new any) any {
	before, isObject := old.(map[string]any)
	after, both := new.(map[string]any)
	if isObject && both {
		for name := range before {
			if got := changed(at+"."+name, before[name], after[name]); got != nil {
				return got
			}
		}
		return nil
	}
	if reflect.DeepEqual(old, new) || old == nil || reflect.ValueOf(old).IsZero() {
		return nil
	}
	return fmt.Sprintf("%s = %v", at, old)
}

// TestDocsJobsPass: each TOML block in docs/job is a valid job, or a valid part of one. A block that begins with the name of the site's or
// the user's file is a file of defaults.
func TestDocsJobsPass(t *testing.T) {
	blocks := 0
	for _, path := range pages(t) {
		for _, block := range regexp.MustCompile("(?s)\n```toml\n(.*?)```").FindAllStringSubmatch(page(t, path), -1) {
			blocks++
			src := block[1]
			if first, _, _ := strings.Cut(src, "\n"); strings.HasPrefix(first, "# /etc/") || strings.HasPrefix(first, "# ~/.config/") {
				file := rundir.DefaultsFile{Name: "defaults.toml", Text: src, Site: strings.HasPrefix(first, "# /etc/")}
				if _, err := ParseDefaults(file); err != nil {
					t.Errorf("%s:\n%s\n%v", filepath.Base(path), src, err)
				}
				continue
			}
			if _, _, err := Parse("job.toml", "/jobs", []byte(src), nil); err == nil {
				continue
			}
			if err := refusal(src); err != nil { // with the settings of docBases, because other parts of the file may be needed
				t.Errorf("%s: no job has\n%s\n%v", filepath.Base(path), src, err)
			}
		}
	}
	if blocks < 10 {
		t.Errorf("only %d blocks found: the search is wrong", blocks)
	}
}
