package jobfile

import (
	"maps"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// CompleteSet returns completions of the beginning of an override of --set: keys followed by "=", tables followed by ".", and, if the key
// is complete, its values, if they are words of a short list. It does not return completions that this version refuses.
//
// [sweep] has keys of its own, and those of the job file that a sweep may set, whose values are lists.
func CompleteSet(begun string) (ways []string) {
	dotted, value, hasValue := strings.Cut(begun, "=")
	if hasValue {
		for _, word := range wordsOf(dotted) {
			if strings.HasPrefix(word, value) {
				ways = append(ways, dotted+"="+word)
			}
		}
		return ways
	}
	const sweep = "sweep."
	ways = keysFrom(dotted)
	if below, swept := strings.CutPrefix(dotted, sweep); swept {
		for _, way := range keysFrom(below) {
			if key := strings.TrimRight(way, ".="); sharedByAll(strings.Split(key, ".")) == nil {
				ways = append(ways, sweep+way)
			}
		}
	}
	return ways
}

// keysFrom returns the keys and tables of the schema that begin with dotted, each followed by "=" or ".".
func keysFrom(dotted string) (ways []string) {
	at := strings.LastIndexByte(dotted, '.') + 1
	table, name := dotted[:at], dotted[at:]
	n := schema()
	if at > 0 {
		n = takenNode(dotted[:at-1])
	}
	if n == nil || n.item != nil {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(n.keys)) {
		child := n.keys[key]
		switch {
		case !strings.HasPrefix(key, name):
		case child.isTable():
			ways = append(ways, table+key+".")
		default:
			ways = append(ways, table+key+"=")
		}
	}
	return ways
}

// takenNode returns the node of a dotted key that --set can set, or nil if there is none.
func takenNode(dotted string) *node {
	n := schema()
	for name := range strings.SplitSeq(dotted, ".") {
		if n.item != nil { // parts of a list cannot be set
			return nil
		}
		if n = n.keys[name]; n == nil {
			return nil
		}
	}
	return n
}

// A question is passed to a reader in place of a value. The reader answers it with the values that it takes.
type question struct {
	words []string // all values, if they are words of a short list
	takes string   // the type as docs/job names it, "whole number from 1"; may be empty if words is set
}

// wordsOf returns the values that a key takes, if they are words of a short list.
func wordsOf(dotted string) []string {
	n := takenNode(dotted)
	if n == nil || n.read == nil {
		return nil
	}
	return n.ask(strings.Split(dotted, ".")).words
}

// ask returns what the reader of n says that it takes.
func (n *node) ask(key toml.Key) (q question) {
	_ = n.read(emptyJob(), key, &q) // a reader without an answer refuses the question, as it does any value of another type
	return q
}

// answering returns a reader that answers a question with words.
func answering(words []string, read reader) reader {
	return func(j *Job, key toml.Key, v any) error {
		if q, asked := v.(*question); asked {
			q.words = words
			return nil
		}
		return read(j, key, v)
	}
}

// taking returns a reader that also answers a question with the type of its values.
func taking(what string, read reader) reader {
	return func(j *Job, key toml.Key, v any) error {
		err := read(j, key, v)
		if q, asked := v.(*question); asked {
			q.takes, err = what, nil
		}
		return err
	}
}
