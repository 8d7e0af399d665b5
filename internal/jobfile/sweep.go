package jobfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"ddpbatch/internal/rundir"
	words "ddpbatch/internal/text"
	"ddpbatch/slurm"
)

// Sweep is [sweep]: one job several times, with other values for some of its keys. Each element of one array has one combination of them.
type Sweep struct {
	Mode     string     `json:"mode"`               // "product": each value with each of the others, the last key fastest | "zip"
	Parallel int        `json:"parallel,omitempty"` // how many elements may run at once; 0: all
	Keys     []SweptKey `json:"keys"`               // in the order of the file
}

// SweptKey is a key of the job file, and its values. The keys of a zip have as many values each.
type SweptKey struct {
	Key    string   `json:"key"`    // dotted: "train.optimizer.lr"
	Values []string `json:"values"` // as TOML has them
}

const (
	product = "product"
	zip     = "zip"
)

const (
	maxElements = 10_000 // of a sweep: each is checked before anything is queued
	maxSwept    = 64     // keys of a sweep
)

// Len is how many elements the sweep has; more than maxElements where there are too many to count.
func (s *Sweep) Len() int {
	if s.Mode == zip {
		return len(s.Keys[0].Values)
	}
	n := 1
	for _, key := range s.Keys {
		if n *= len(key.Values); n > maxElements {
			return maxElements + 1
		}
	}
	return n
}

// sets reports whether a key is swept.
func (s *Sweep) sets(key string) bool {
	return slices.ContainsFunc(s.Keys, func(k SweptKey) bool { return k.Key == key })
}

// values are those of one element, as TOML has them, in the order of the keys.
func (s *Sweep) values(index int) []string {
	values := make([]string, len(s.Keys))
	for i, key := range slices.Backward(s.Keys) {
		at := index
		if s.Mode == product {
			at, index = index%len(key.Values), index/len(key.Values)
		}
		values[i] = key.Values[at]
	}
	return values
}

// array has an index for each element.
func (s *Sweep) array() slurm.Array {
	array := slurm.Array{Limit: s.Parallel}
	for i := range s.Len() {
		array.Indices = append(array.Indices, i)
	}
	return array
}

// check says what is wrong with a sweep that comes from a spec, which another user may have written.
func (s *Sweep) check() error {
	if s.Mode != product && s.Mode != zip || len(s.Keys) == 0 || len(s.Keys) > maxSwept {
		return errors.New("its sweep has no keys, or no mode, or too many keys")
	}
	for _, key := range s.Keys {
		if len(key.Values) == 0 || s.Mode == zip && len(key.Values) != len(s.Keys[0].Values) {
			return fmt.Errorf("its sweep has %d values of %s", len(key.Values), short(key.Key))
		}
	}
	if s.Len() > maxElements {
		return fmt.Errorf("its sweep has more than %d elements", maxElements)
	}
	return nil
}

// Columns name the keys in short: by their last parts, as many as tell them from each other.
func (s *Sweep) Columns() []string {
	columns := make([]string, len(s.Keys))
	for i, key := range s.Keys {
		for parts := 1; ; parts++ {
			columns[i] = lastParts(key.Key, parts)
			shared := func(other SweptKey) bool { return lastParts(other.Key, parts) == columns[i] && other.Key != key.Key }
			if columns[i] == key.Key || !slices.ContainsFunc(s.Keys, shared) {
				break
			}
		}
	}
	return columns
}

// lastParts is the end of a dotted key.
func lastParts(key string, parts int) string {
	all := strings.Split(key, ".")
	return strings.Join(all[max(0, len(all)-parts):], ".")
}

// Shown are the values of an element for a person, in the order of the keys. What may be secret is blanked.
func (s *Sweep) Shown(index int) []string {
	shown := s.values(index)
	for i, text := range shown {
		value := redacted(s.Keys[i].Key, text)
		if plain, ok := value.(string); ok {
			shown[i] = plain
		} else {
			shown[i], _ = textOf(value)
		}
	}
	return shown
}

// Given are the values of an element by their keys, for a program. What may be secret is blanked.
func (s *Sweep) Given(index int) map[string]any {
	given := make(map[string]any, len(s.Keys))
	for i, text := range s.values(index) {
		given[s.Keys[i].Key] = redacted(s.Keys[i].Key, text)
	}
	return given
}

// redacted is the value of a swept key less what may be secret, which may also be an item of it: a word of a command.
func redacted(key, text string) any { return Setting{Key: key, Value: valueOf(text)}.Redacted().Value }

const (
	maxShown = 24  // bytes of a value in a name
	maxName  = 120 // bytes
)

// Name says an element's values in a name for a file: lr=0.1,seed=1. Two elements may have the same, where values are long, or hold what
// has no place in the name of a file.
func (s *Sweep) Name(index int) string {
	columns := s.Columns()
	var parts []string
	for i, value := range s.Shown(index) {
		parts = append(parts, columns[i]+"="+words.Cut(strings.Map(inName, value), maxShown))
	}
	return words.Cut(strings.Join(parts, ","), maxName)
}

// inName is a character of a value as it stands in an element's name.
func inName(r rune) rune {
	if r < 0x80 && (r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune("._+-", r)) {
		return r
	}
	return '_'
}

// Array is the array that the job asks for; nil where it asks for none.
func (j *Job) Array() (*slurm.Array, error) {
	text, asks := j.Slurm.Get("array")
	switch {
	case !asks || j.Slurm.Skips("array"):
		return nil, nil
	case j.Sweep != nil: // which may have more elements than ParseArray takes
		array := j.Sweep.array()
		return &array, nil
	}
	array, err := slurm.ParseArray(text)
	return &array, err
}

// Of is the job of a run, which it is, or of an element of its array: of a sweep that is another for each of them.
func (j *Job) Of(d *rundir.Dir) (*Job, error) {
	index, isElement := d.Index()
	if !isElement || j.Sweep == nil {
		return j, nil
	}
	return j.Element(index)
}

// Element is the job of one element of a sweep, with its values set.
func (j *Job) Element(index int) (*Job, error) {
	if index < 0 || index >= j.Sweep.Len() {
		return nil, fmt.Errorf("the sweep has %s, and none has the number %d", words.Plural(j.Sweep.Len(), "element"), index)
	}
	alone := *j
	alone.Sweep = nil
	data, err := json.Marshal(alone) // for a copy that shares nothing
	if err != nil {
		return nil, fmt.Errorf("write the job as JSON: %w", err)
	}
	var element Job
	if err := json.Unmarshal(data, &element); err != nil {
		return nil, fmt.Errorf("read the job: %w", err)
	}
	for i, text := range j.Sweep.values(index) {
		key := strings.Split(j.Sweep.Keys[i].Key, ".")
		n := schema()
		for _, name := range key {
			if n = n.child(name); n == nil {
				return nil, fmt.Errorf("set the values of element %d: there is no key %s", index, j.Sweep.Keys[i].Key)
			}
		}
		if n.read == nil {
			return nil, fmt.Errorf("set the values of element %d: %s is a table", index, j.Sweep.Keys[i].Key)
		}
		if err := n.read(&element, key, valueOf(text)); err != nil {
			return nil, fmt.Errorf("set the values of element %d: %w", index, err)
		}
	}
	return &element, nil
}

// valueOf reads what textOf wrote.
func valueOf(text string) any { return overrideValue(text) }

// textOf writes a value as TOML has it; ok is false for a table, or a date, which no key takes.
func textOf(v any) (text string, ok bool) {
	switch v := v.(type) {
	case string:
		quoted, err := json.Marshal(v) // whose escapes are TOML's, too, but it has none for DEL
		return strings.ReplaceAll(string(quoted), "\x7f", `\u007f`), err == nil
	case int64, bool:
		return fmt.Sprint(v), true
	case float64:
		return floatText(v), true
	case []any:
		items := make([]string, len(v))
		for i, item := range v {
			if items[i], ok = textOf(item); !ok {
				return "", false
			}
		}
		return "[" + strings.Join(items, ", ") + "]", true
	}
	return "", false
}

// floatText writes a number so that TOML reads a float again.
func floatText(x float64) string {
	text := strconv.FormatFloat(x, 'g', -1, 64)
	if !strings.ContainsAny(text, ".eIN") {
		text += ".0"
	}
	return strings.ToLower(text) // TOML's inf and nan
}
