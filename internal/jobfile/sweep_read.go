package jobfile

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

	"github.com/BurntSushi/toml"

	words "ddpbatch/internal/text"
	"ddpbatch/slurm"
)

// sweptKey is a key of [sweep] while the file is checked.
type sweptKey struct {
	path   toml.Key
	at     *position
	values []any
}

// sweep is [sweep] while the file is checked.
type sweep struct {
	at    *position
	job   *Sweep
	keys  []sweptKey
	array []slurm.Option // the option by which sbatch makes the elements

	faults, warnings int // how many there were before the tables were checked
}

// takeSweep removes [sweep] from a file's tables, and reads it. It returns nil if there is none, or if it has a fault. A table without keys
// counts as none, so that an override (--set sweep={}) removes a sweep.
func (c *checker) takeSweep(values map[string]any, root *position) *sweep {
	v, given := values["sweep"]
	delete(values, "sweep")
	key, at := toml.Key{"sweep"}, root.below("sweep")
	table, isTable := v.(map[string]any)
	if given && !isTable {
		c.fault(at, key, "%s", mustBe(key, "a table", v))
	}
	if len(table) == 0 {
		return nil
	}
	s, before := &sweep{at: at, job: sweepOf(c.job)}, len(c.faults)
	c.sweepTable(s, nil, table, at)
	c.job.Sweep = nil // checkAlike sets it in the job of the first element
	if len(s.keys) == 0 && len(c.faults) == before {
		c.fault(at, key, `[sweep] does not name a key of the job file, such as "train.optimizer.lr" = [0.1, 0.01]`)
	}
	if len(s.keys) > maxSwept {
		c.fault(at, key, "the sweep has %d keys; at most %d are allowed", len(s.keys), maxSwept)
	}
	c.besideSweep(s, values, root)
	for _, k := range s.keys {
		swept := SweptKey{Key: strings.Join(k.path, ".")}
		for _, value := range k.values {
			text, _ := textOf(value)
			swept.Values = append(swept.Values, text)
		}
		s.job.Keys = append(s.job.Keys, swept)
	}
	if len(s.keys) == 0 || len(c.faults) > before || !c.countElements(s) {
		return nil
	}
	s.array = []slurm.Option{{Name: "array", Value: s.job.array().String()}}
	c.job.Slurm.List = slices.Clone(s.array) // other keys are checked against it
	s.faults, s.warnings = len(c.faults), len(c.warnings)
	return s
}

// sweepTable reads [sweep], or a table in it: "train.optimizer.lr" = [...] may be written without the quotation marks.
func (c *checker) sweepTable(s *sweep, path toml.Key, table map[string]any, at *position) {
	names := slices.Sorted(maps.Keys(table))
	slices.SortStableFunc(names, func(a, b string) int { return comparePositions(at.below(a), at.below(b)) })
	for _, name := range names {
		v, where := table[name], at.below(name)
		key := toml.Key{"sweep", name}
		switch sub, isTable := v.(map[string]any); {
		case isTable:
			c.sweepTable(s, append(slices.Clip(path), strings.Split(name, ".")...), sub, where)
		case path == nil && schema().keys["sweep"].keys[name] != nil:
			c.value(schema().keys["sweep"].keys[name], key, v, where)
		default:
			c.sweptKey(s, append(slices.Clip(path), strings.Split(name, ".")...), v, where)
		}
	}
}

// sweptKey reads one key of the job file and its values.
func (c *checker) sweptKey(s *sweep, path toml.Key, v any, at *position) {
	at = &position{offset: at.offset, set: at.set} // without the text of a --set, which is that of all values
	path, n, err := findSwept(path)
	if err == nil {
		err = sharedByAll(path)
	}
	before := slices.IndexFunc(s.keys, func(other sweptKey) bool { return slices.Equal(other.path, path) })
	if err == nil && before >= 0 && s.keys[before].at.set == at.set {
		err = fmt.Errorf("%s is swept twice: write all its values once", path)
	}
	var values []any
	if err == nil {
		values, err = sweptValues(path, n, v)
	}
	if err != nil {
		c.fault(at, toml.Key{"sweep", strings.Join(path, ".")}, "%s", err)
		return
	}
	if before >= 0 { // an override of the key, which may be spelled differently
		s.keys[before] = sweptKey{path, at, values}
		return
	}
	s.keys = append(s.keys, sweptKey{path, at, values})
}

// findSwept returns the key of the schema that a key of [sweep] means. A word without a dot is the last part of a key below [train].
func findSwept(path toml.Key) (toml.Key, *node, error) {
	n := schema()
	if len(path) == 1 && n.keys[path[0]] == nil {
		return findShort(path[0])
	}
	for i, name := range path {
		if !n.isTable() {
			return path, nil, fmt.Errorf("unknown key %s: %s is not a table", path, path[:i])
		}
		child := n.child(name)
		if child == nil {
			var err error
			if i == 0 {
				err = meantSwept(strings.Join(path, "."))
			}
			return path, nil, cmp.Or(err, errors.New(unknown(n, path[:i+1], nil, false)))
		}
		n = child
	}
	if n.isTable() {
		return path, nil, fmt.Errorf("[%s] is a table: sweep its keys, each by its whole name", path)
	}
	return path, n, nil
}

// findShort returns the only key below [train] whose last part is name.
func findShort(name string) (toml.Key, *node, error) {
	var found []string
	all := map[string]string{} // by their last parts
	var look func(n *node, key toml.Key)
	look = func(n *node, key toml.Key) {
		last := key[len(key)-1]
		if n.read != nil {
			all[last] = key.String()
			if last == name {
				found = append(found, key.String())
			}
		}
		for _, at := range slices.Sorted(maps.Keys(n.keys)) {
			look(n.keys[at], below(key, at))
		}
	}
	look(schema().keys["train"], toml.Key{"train"})
	path, meant := toml.Key{name}, meantSwept(name)
	switch near := words.Nearest(name, slices.Sorted(maps.Keys(all))); {
	case len(found) == 1:
		path = strings.Split(found[0], ".")
		return findSwept(path)
	case len(found) > 1:
		return path, nil, fmt.Errorf("%s in [sweep] may mean %s: write the whole key", short(name), words.Choice(found))
	case meant != nil:
		return path, nil, meant
	case near != "":
		return path, nil, fmt.Errorf("unknown key %s in [sweep]: did you mean %s?", short(name), short(all[near]))
	}
	return path, nil, fmt.Errorf(`unknown key %s in [sweep]: write a key of the job file, such as "train.optimizer.lr", `+
		`or a variable of the ranks, "setup.env.NAME"`, short(name))
}

// meantSwept returns an error that names the keys of the job file that end with dotted, a key of [sweep] that is not one of them, or says
// that these cannot be swept. It returns nil if there are none.
func meantSwept(dotted string) error {
	var keys []string
	var shared error
	var look func(n *node, key toml.Key)
	look = func(n *node, key toml.Key) {
		if whole := strings.Join(key, "."); n.read != nil && strings.HasSuffix(whole, "."+dotted) {
			if err := sharedByAll(key); err != nil {
				shared = err
			} else {
				keys = append(keys, whole)
			}
		}
		if n.item != nil {
			return
		}
		for _, name := range slices.Sorted(maps.Keys(n.keys)) {
			look(n.keys[name], below(key, name))
		}
	}
	look(schema(), nil)
	if len(keys) == 0 {
		return shared
	}
	return fmt.Errorf("unknown key %s in [sweep]: did you mean %s?", short(dotted), words.Choice(keys))
}

// sharedByAll refuses keys that have the same value for all elements: all keys that submit itself uses, as all elements share the batch
// script, the run directory and what the job asks of Slurm.
func sharedByAll(path toml.Key) error {
	key := strings.Join(path, ".")
	one := []string{
		"schema", "name", "workdir", "run_dir", "script_template", "slurm", "code", "container", "sweep",
		"setup.modules", "setup.venv", "setup.conda", "setup.script",
		"launch.nproc_per_node", "launch.mode", "launch.min_nodes", "launch.grace", "requeue.on", "requeue.lead",
	}
	for _, shared := range one {
		if key == shared || strings.HasPrefix(key, shared+".") {
			return fmt.Errorf("%s cannot be swept: all elements share the batch script, the run directory, and what they ask of Slurm; "+
				"submit a job for each value instead", key)
		}
	}
	return nil
}

// sweptValues returns the values of a key: a list, or a range of whole numbers.
func sweptValues(path toml.Key, n *node, v any) (values []any, err error) {
	key := strings.Join(path, ".")
	list, isList := v.([]any)
	text, isText := v.(string)
	switch {
	case isList:
		values = list
	case isText && rangePattern().MatchString(text):
		if values, err = wholeRange(text); err != nil {
			return nil, fmt.Errorf("the values of %s: %w", key, err)
		}
	default:
		return nil, mustBe(path, `a list of values here, or a range of whole numbers such as "1-5" or "1-9:2"`, v)
	}
	switch {
	case len(values) == 0:
		return nil, fmt.Errorf("the list of values of %s is empty", key)
	case len(values) > maxElements:
		return nil, fmt.Errorf("%s has %s: a sweep has at most %d elements", key, words.Plural(len(values), "value"), maxElements)
	}
	values = slices.Clone(values)
	for i, value := range values {
		if n == schema().keys["setup"].keys["env"].any {
			values[i] = asText(value) // so that ranges, which give numbers, are possible here
		}
		if _, ok := textOf(values[i]); !ok {
			return nil, fmt.Errorf("value %d of %s is %s, which cannot be a value of a key", i+1, key, describe(value))
		}
	}
	return values, nil
}

// asText returns the text of a number, true or false, and other values unchanged.
func asText(v any) any {
	switch v.(type) {
	case int64, float64, bool:
		text, _ := textOf(v)
		return text
	}
	return v
}

var rangePattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([0-9]+)-([0-9]+)(?::([0-9]+))?$`) })

// wholeRange reads what rangePattern matches: "1-5" is 1 to 5, and "1-9:2" is every second number of 1 to 9.
func wholeRange(text string) ([]any, error) {
	parts := rangePattern().FindStringSubmatch(text)
	first, err1 := strconv.ParseInt(parts[1], 10, 64)
	last, err2 := strconv.ParseInt(parts[2], 10, 64)
	step, err3 := strconv.ParseInt(cmp.Or(parts[3], "1"), 10, 64)
	switch {
	case err1 != nil || err2 != nil || err3 != nil:
		return nil, fmt.Errorf("the range %s has a number that is too large", short(text))
	case last < first:
		return nil, fmt.Errorf("the range %s runs backwards; write the lower number first", short(text))
	case step == 0:
		return nil, fmt.Errorf("the step of the range %s is 0; write 1 or more", short(text))
	case (last-first)/step >= maxElements:
		return nil, fmt.Errorf("the range %s is too long: a sweep has at most %d elements", short(text), maxElements)
	}
	var values []any
	for i := int64(0); i <= (last-first)/step; i++ {
		values = append(values, first+i*step)
	}
	return values, nil
}

// besideSweep adds faults for what cannot be combined with a sweep.
func (c *checker) besideSweep(s *sweep, values map[string]any, root *position) {
	table, _ := values["slurm"].(map[string]any)
	if key := (toml.Key{"slurm", "array"}); table["array"] != nil {
		c.fault(root.at(key), key, "%s cannot be combined with [sweep], which makes the array: "+
			"to limit how many elements run at once, write sweep.parallel = N", key)
	}
	if links, _ := table["chain"].(int64); links > 1 {
		key := toml.Key{"slurm", "chain"}
		c.fault(root.at(key), key, "%s cannot be combined with [sweep], whose elements end at different times: "+
			"submit a job for each value, or leave it out", key)
	}
	for i, o := range c.sets {
		given, at := map[string]any{}, &position{}
		o.apply(given, at, &position{})
		for _, k := range s.keys {
			if _, _, sets := lookUp(given, at, k.path); sets {
				c.fault(&position{set: i + 1}, o.path, "the sweep sets %s in each element, so this would have no effect: "+
					"submit the job with other values, --set 'sweep.%s=[...]', or without the sweep, --set sweep={}", k.path, k.path)
				break
			}
		}
	}
}

// countElements checks that the sweep has at most maxElements elements, and none of them twice. It adds faults, and returns false if there
// are any.
func (c *checker) countElements(s *sweep) bool {
	for i, key := range s.job.Keys {
		at, path := s.keys[i].at, toml.Key{"sweep", key.Key}
		if first := s.job.Keys[0]; s.job.Mode == zip && len(key.Values) != len(first.Values) {
			c.fault(at, path, `%s has %s and %s %d: with mode = "zip" all keys must have the same number of values`,
				key.Key, words.Plural(len(key.Values), "value"), first.Key, len(first.Values))
			return false
		}
		for n, value := range key.Values {
			if twin := slices.Index(key.Values, value); s.job.Mode == product && twin < n {
				c.fault(at, path, "values %d and %d of %s are the same", twin+1, n+1, key.Key)
				return false
			}
		}
	}
	if s.job.Len() > maxElements {
		c.fault(s.at, toml.Key{"sweep"}, "the sweep has more than %d elements: write fewer values", maxElements)
		return false
	}
	elements := map[string]int{}
	for i := range s.job.Len() {
		values := strings.Join(s.job.values(i), "\n")
		if twin, taken := elements[values]; taken {
			c.fault(s.at, toml.Key{"sweep"}, "elements %d and %d of the sweep have the same values", twin, i)
			return false
		}
		elements[values] = i
	}
	return true
}

// sweepOf returns a job's sweep, and makes one if there is none.
func sweepOf(j *Job) *Sweep {
	if j.Sweep == nil {
		j.Sweep = &Sweep{Mode: product}
	}
	return j.Sweep
}
