package jobfile

import (
	"maps"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// CompleteSet tells how the beginning of an override, as --set takes it, may go on: as keys with "=" behind them, tables with "." behind
// them, and where the key is there, as the values that it takes, if they are words of a short list. Nothing is offered that this version
// refuses.
//
// [sweep] has keys of its own and those of the job file that a sweep may set, whose values are lists.
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

// keysFrom are the keys and tables of the schema that begin so, each with what stands behind it.
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

// takenNode is the node of a dotted key; nil where there is none.
func takenNode(dotted string) *node {
	n := schema()
	for name := range strings.SplitSeq(dotted, ".") {
		if n.item != nil { // in a list nothing can be set alone
			return nil
		}
		if n = n.keys[name]; n == nil {
			return nil
		}
	}
	return n
}

// A question stands in the place of a value, which no file holds: a reader answers with what it takes.
type question struct {
	words []string // all values, where they are words of a short list
	takes string   // the type as docs/job has it, "whole number from 1"; may be empty where words say it
}

// wordsOf are the values that a key takes, where they are words of a short list.
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

// answering has a reader answer a question with words.
func answering(words []string, read reader) reader {
	return func(j *Job, key toml.Key, v any) error {
		if q, asked := v.(*question); asked {
			q.words = words
			return nil
		}
		return read(j, key, v)
	}
}

// taking has a reader answer a question with the type of its values, too.
func taking(what string, read reader) reader {
	return func(j *Job, key toml.Key, v any) error {
		err := read(j, key, v)
		if q, asked := v.(*question); asked {
			q.takes, err = what, nil
		}
		return err
	}
}
