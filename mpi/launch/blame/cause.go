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
	"syscall"
)

// Class is where a cause lies.
type Class string

const (
	Program        Class = "program"        // in the job's program, or in how the job was configured
	Infrastructure Class = "infrastructure" // in a node, the network or a file system
)

// KnownCause is a cause that programs, libraries and drivers name in known messages.
type KnownCause struct {
	Name  string
	Class Class
	// Final reports whether the failure would come again until a person changes something: restarts do not help.
	Final bool
	// Node reports whether the fault is the node's: another attempt should avoid that node.
	Node   bool
	Advice string // one line: what a person can do
}

// Finding is what Find concludes from a rank's last lines.
type Finding struct {
	Error string // one line, safe for a terminal, that says what was wrong, such as an exception's last line; "": none was found
	KnownCause
	// Trace is a digest of the traceback that ended the rank, without numbers that differ between attempts. It is "" if there is no
	// traceback, or if another rank or something outside the program caused it.
	Trace string
}

const maxFound = 500 // runes of Finding.Error

// killAdvice is for a rank that KILL ended, without a known cause.
const killAdvice = "if nobody killed it, memory may have run out (the node's kernel log says so then): ask for more (slurm.mem), " +
	"or use fewer data workers"

// Find finds out why a rank failed. The result is zero for a rank that ended well, asked to be started again, or obeyed a stop.
func Find(d Death) Finding {
	judged := evidenceOf(d)
	if judged >= obeyed {
		return Finding{}
	}
	words := lastWords(d)
	found := Finding{Error: clean(words.error, maxFound)}
	match, ok := match{}, false
	switch {
	case d.OOM != "": // the kernel's evidence counts most
		match, ok = knownAs(hostMemory), true
	default:
		match, ok = matchTable(d, words)
	}
	if ok {
		found.KnownCause = match.cause(d)
		found.Error = cmp.Or(found.Error, clean(match.line, maxFound))
	}
	if !ok && d.Signal == int(syscall.SIGKILL) && judged == firstHand { // without a memory cgroup, nothing counts the kernel's kills
		found.Advice = killAdvice
	}
	if judged < victim && (found.Class == Program || found.Class == "" && isSlip(found.Error)) {
		found.Trace = words.trace
	}
	return found
}

// slips are Python exceptions that faults in the program raise, and hardly anything outside of it: a network or a server that fails
// for a while raises others.
var slips = []string{
	"ArithmeticError", "AssertionError", "AttributeError", "ImportError", "IndexError", "KeyError", "LookupError", "ModuleNotFoundError",
	"NameError", "NotImplementedError", "RecursionError", "TypeError", "UnboundLocalError", "ValueError", "ZeroDivisionError",
}

// isSlip reports whether an exception's last line shows a fault in the program.
func isSlip(line string) bool {
	kind, _, _ := strings.Cut(line, ":")
	return slices.Contains(slips, kind)
}

// LacksModule reports whether a rank failed because a Python module is missing.
func LacksModule(d Death) bool { return Find(d).Name == missingModule }

// match is a row of the table, and the line of a rank's output that it matches.
type match struct {
	row   row
	line  string
	group string // what the pattern's group has matched; "": no group
}

// cause is the row's cause, with the advice for this rank.
func (m match) cause(d Death) KnownCause {
	python := cmp.Or(d.Python, "the python3 of the workers")
	fill := strings.NewReplacer("{1}", clean(m.group, 80), "{python}", clean(python, 200))
	c := m.row.KnownCause
	switch {
	case d.Contained:
		c.Advice = cmp.Or(m.row.containerAdvice, c.Advice)
	case d.Simulated:
		c.Advice = cmp.Or(m.row.simulateAdvice, c.Advice)
	}
	c.Advice = fill.Replace(c.Advice)
	return c
}

// knownAs is the row with the given name.
func knownAs(name string) match {
	rows := table()
	return match{row: rows[slices.IndexFunc(rows, func(r row) bool { return r.Name == name })]}
}

// lastFew is how many last lines may give the reason if they do not contain an error: the rank may have survived earlier problems.
const lastFew = 4

// matchTable finds the row of the table that a rank's last lines match. If it is vague, an earlier line may match a more specific row.
func matchTable(d Death, words account) (match, bool) {
	errs, outs := d.words()
	ends := append(lastOf(errs, lastFew, wordsBytes), lastOf(outs, lastFew, wordsBytes)...)
	unnamed := words.error == ""
	m, ok := firstRow(func(r row) (match, bool) {
		switch {
		case !unnamed:
			return r.find(words.lines)
		case r.in == atEnd && (d.Signal == 0 || !r.Final && !r.Node): // a rank that a signal killed may have printed this long before
			return r.find(ends)
		}
		return match{}, false
	})
	if !ok && !unnamed { // the first exception of the chain, if the last is not in the table
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

// firstRow returns the match of the first row of the table that matches.
func firstRow(find func(row) (match, bool)) (match, bool) {
	for _, r := range table() {
		if m, ok := find(r); ok {
			return m, true
		}
	}
	return match{}, false
}

// find returns the last line that r matches, in the first of the texts with such a line.
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

// changing matches the parts of an error that differ between attempts: addresses and numbers.
var changing = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`0x[0-9a-fA-F]+|[0-9]+`) })

// traceOf returns the digest of a chain of exceptions: where each was raised, and its first line.
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
