package blame

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Class says where a cause lies.
type Class string

const (
	Program        Class = "program"        // in what the job runs, or in how it was asked for
	Infrastructure Class = "infrastructure" // in a node, the network or a file system
)

// KnownCause is a cause that programs, libraries and drivers name in a message of their own.
type KnownCause struct {
	Name  string
	Class Class
	// Final tells that the same comes again until a person changes something: no restart mends it.
	Final bool
	// Node tells that the fault is the node's: another attempt should do without it.
	Node   bool
	Advice string // one line: what a person can do
}

// Finding is what a rank's last words come to.
type Finding struct {
	Error string // the line that says what was wrong: of an exception its last line; "": none was found. Of one line, for a terminal
	KnownCause
	// Trace is a digest of the traceback that ended the rank, less numbers that differ from attempt to attempt; "": there is none, or
	// it came of another rank, or of what is not the program's.
	Trace string
}

const maxFound = 500 // runes of Finding.Error

// Find says what a rank died of. Of one that ended well, or as it was asked or told to, it is zero.
func Find(d Death) Finding {
	judged := evidenceOf(d)
	if judged >= obeyed {
		return Finding{}
	}
	words := lastWords(d)
	found := Finding{Error: clean(words.error, maxFound)}
	match, ok := match{}, false
	switch {
	case d.OOM != "": // the kernel's word is better than any
		match, ok = knownAs(hostMemory), true
	default:
		match, ok = matchTable(d, words)
	}
	if ok {
		found.KnownCause = match.cause(d)
		found.Error = cmp.Or(found.Error, clean(match.line, maxFound))
	}
	if judged < victim && (found.Class == Program || found.Class == "" && isSlip(found.Error)) {
		found.Trace = words.trace
	}
	return found
}

// slips are exceptions of Python that a fault in the program raises, and hardly anything outside of it: a network or a server that fails
// for a while raises others.
var slips = []string{
	"ArithmeticError", "AssertionError", "AttributeError", "ImportError", "IndexError", "KeyError", "LookupError", "ModuleNotFoundError",
	"NameError", "NotImplementedError", "RecursionError", "TypeError", "UnboundLocalError", "ValueError", "ZeroDivisionError",
}

// isSlip reports whether an exception's last line is that of a fault in the program.
func isSlip(line string) bool {
	kind, _, _ := strings.Cut(line, ":")
	return slices.Contains(slips, kind)
}

// LacksModule reports whether a rank died of a Python module that is not there.
func LacksModule(d Death) bool { return Find(d).Name == missingModule }

// match is a row of the table that a line of a rank's last words has matched.
type match struct {
	row   row
	line  string
	group string // what the pattern's group has matched; "": it has none
}

// cause is the row's, with the advice for this rank.
func (m match) cause(d Death) KnownCause {
	python := cmp.Or(d.Python, "the python3 of the workers")
	fill := strings.NewReplacer("{1}", clean(m.group, 80), "{python}", clean(python, 200))
	c := m.row.KnownCause
	c.Advice = fill.Replace(c.Advice)
	return c
}

// knownAs is the row of a name.
func knownAs(name string) match {
	rows := table()
	return match{row: rows[slices.IndexFunc(rows, func(r row) bool { return r.Name == name })]}
}

// lastFew is how many last lines may say what a rank died of that names no error: what went wrong before may have been survived.
const lastFew = 4

// matchTable finds the row of the table that a rank's last words match. Of one that is vague another row may say more, by a line before.
func matchTable(d Death, words account) (match, bool) {
	errs, outs := d.words()
	ends := append(lastOf(errs, lastFew, wordsBytes), lastOf(outs, lastFew, wordsBytes)...)
	unnamed := words.error == ""
	m, ok := firstRow(func(r row) (match, bool) {
		switch {
		case !unnamed:
			return r.find(words.lines)
		case r.in == atEnd && (d.Signal == 0 || !r.Final && !r.Node): // what a signal killed may have said so long before
			return r.find(ends)
		}
		return match{}, false
	})
	if !ok && !unnamed { // what was raised first, before what nobody knows
		m, ok = firstRow(func(r row) (match, bool) { return r.find(words.originLines) })
	}
	if ok && m.row.vague == 0 || !ok && !unnamed {
		return m, ok
	}
	if more, ok := firstRow(func(r row) (match, bool) {
		if r.in < besideGPU || ok && r.in != m.row.vague {
			return match{}, false
		}
		return r.find(d.Tail)
	}); ok {
		return more, true
	}
	return m, ok
}

// firstRow returns what the first row of the table matches that matches anything.
func firstRow(find func(row) (match, bool)) (match, bool) {
	for _, r := range table() {
		if m, ok := find(r); ok {
			return m, true
		}
	}
	return match{}, false
}

// find returns the last line that r matches, in the first of several texts in which it matches one.
func (r row) find(texts ...[]string) (match, bool) {
	for _, lines := range texts {
		for _, line := range slices.Backward(lines) {
			line = rankLabel().ReplaceAllString(line, "")
			if groups := r.pattern.FindStringSubmatch(line); groups != nil {
				return match{row: r, line: line, group: strings.Join(groups[1:], "")}, true
			}
		}
	}
	return match{}, false
}

// changing are parts of an error that differ from attempt to attempt: addresses, and numbers.
var changing = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`0x[0-9a-fA-F]+|[0-9]+`) })

// traceOf is the digest of a chain of exceptions: where each was raised, and its first line.
func traceOf(chain []traceback) string {
	digest := sha256.New()
	for _, t := range chain {
		for _, frame := range t.frames {
			fmt.Fprintln(digest, frame)
		}
		fmt.Fprintln(digest, changing().ReplaceAllString(t.exception[0], "#"))
	}
	const digits = 16
	return hex.EncodeToString(digest.Sum(nil))[:digits]
}
