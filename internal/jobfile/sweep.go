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

// Sweep is [sweep]: one job several times, with different values for some of its keys. Each element of an array has one combination of
// values.
type Sweep struct {
	Mode     string     `json:"mode"`               // "product": each value with each of the others, the last key fastest | "zip"
	Parallel int        `json:"parallel,omitempty"` // how many elements may run at once; 0: all
	Keys     []SweptKey `json:"keys"`               // in the order of the file
}

// SweptKey is a key of the job file, and its values. All keys of a zip have the same number of values.
type SweptKey struct {
	Key    string   `json:"key"`    // dotted: "train.optimizer.lr"
	Values []string `json:"values"` // in the form of TOML
}

const (
	product = "product"
	zip     = "zip"
)

const (
	maxElements = 10_000 // of a sweep: each is checked before anything is queued
	maxSwept    = 64     // keys of a sweep
)

// Len returns how many elements the sweep has, or maxElements + 1 if there are more than maxElements.
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

// values returns the values of one element, in the form of TOML, in the order of the keys.
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

// array returns an array with an index for each element.
func (s *Sweep) array() slurm.Array {
	array := slurm.Array{Limit: s.Parallel}
	for i := range s.Len() {
		array.Indices = append(array.Indices, i)
	}
	return array
}

// check returns an error if a sweep from a spec, which another user may have written, is not valid.
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

// Columns returns short names of the keys: as many of their last parts as distinguish them.
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

// lastParts returns the last parts of a dotted key.
func lastParts(key string, parts int) string {
	all := strings.Split(key, ".")
	return strings.Join(all[max(0, len(all)-parts):], ".")
}

// Shown returns the values of an element for a person, in the order of the keys. It hides what may be secret.
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

// Given returns the values of an element by their keys, for a program. It hides what may be secret.
func (s *Sweep) Given(index int) map[string]any {
	given := make(map[string]any, len(s.Keys))
	for i, text := range s.values(index) {
		given[s.Keys[i].Key] = redacted(s.Keys[i].Key, text)
	}
	return given
}

// redacted returns the value of a swept key without what may be secret. That may also be an item of it: a word of a command.
func redacted(key, text string) any { return Setting{Key: key, Value: valueOf(text)}.Redacted().Value }

const (
	maxShown = 24  // bytes of a value in a name
	maxName  = 120 // bytes
)

// Name returns an element's values in the form of a file name: lr=0.1,seed=1. Two elements may have the same name if values are long or
// contain characters that do not belong in a file name.
func (s *Sweep) Name(index int) string {
	columns := s.Columns()
	var parts []string
	for i, value := range s.Shown(index) {
		parts = append(parts, columns[i]+"="+words.Cut(strings.Map(inName, value), maxShown))
	}
	return words.Cut(strings.Join(parts, ","), maxName)
}

// inName maps a character of a value to one of an element's name.
func inName(r rune) rune {
	if r < 0x80 && (r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune("._+-", r)) {
		return r
	}
	return '_'
}

// Array returns the array that the job asks for, or nil if it does not ask for one.
func (j *Job) Array() (*slurm.Array, error) {
	text, asks := j.Slurm.Get("array")
	switch {
	case !asks || j.Slurm.Skips("array"):
		return nil, nil
	case j.Sweep != nil: // it may have more elements than ParseArray accepts
		array := j.Sweep.array()
		return &array, nil
	}
	array, err := slurm.ParseArray(text)
	return &array, err
}

// Of returns the job of a run or of an element of its array. In a sweep each element has a job of its own.
func (j *Job) Of(d *rundir.Dir) (*Job, error) {
	index, isElement := d.Index()
	if !isElement || j.Sweep == nil {
		return j, nil
	}
	return j.Element(index)
}

// Element returns the job of one element of a sweep, with its values set.
func (j *Job) Element(index int) (*Job, error) {
	if index < 0 || index >= j.Sweep.Len() {
		return nil, fmt.Errorf("the sweep has %s; element %d does not exist", words.Plural(j.Sweep.Len(), "element"), index)
	}
	alone := *j
	alone.Sweep = nil
	data, err := json.Marshal(alone) // a deep copy
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
				return nil, fmt.Errorf("set the values of element %d: unknown key %s", index, j.Sweep.Keys[i].Key)
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

// valueOf parses what textOf wrote.
func valueOf(text string) any { return overrideValue(text) }

// textOf formats a value in the form of TOML. ok is false for a table or a date, which are not values of keys.
func textOf(v any) (text string, ok bool) {
	switch v := v.(type) {
	case string:
		quoted, err := json.Marshal(v) // its escapes are also TOML's, but it does not escape DEL
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

// floatText formats a number so that TOML reads it as a float.
func floatText(x float64) string {
	text := strconv.FormatFloat(x, 'g', -1, 64)
	if !strings.ContainsAny(text, ".eIN") {
		text += ".0"
	}
	return strings.ToLower(text) // TOML's inf and nan
}
