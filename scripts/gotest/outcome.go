package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// event is a line of go test -json (go doc test2json).
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Elapsed float64 // seconds
}

// test names a test or a subtest; for a package itself name is empty.
type test struct{ pkg, name string }

func (t test) String() string { return strings.TrimSpace(t.pkg + " " + t.name) }

// outcome is the outcome of a run of go test.
type outcome struct {
	passed bool
	ended  map[test]string // "pass", "fail" or "skip", of each test and package that ended
	said   map[test]string // the output of failed tests and packages
	failed []test          // in the order in which they ended, packages included
	tally  tally
}

// read reads the events of one run from r. It prints each package after that has ended, as go test does without -v: one line if it passed,
// and otherwise the output of its failed tests.
func read(r io.Reader, w io.Writer) (outcome, error) {
	o := outcome{passed: true, ended: map[test]string{}, said: map[test]string{}}
	said := map[test]*bytes.Buffer{}
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil && err != io.EOF {
			return o, err
		}
		last := err == io.EOF
		var e event
		if len(line) > 0 && json.Unmarshal(line, &e) != nil {
			w.Write(line) // a line of standard error
		}
		t := test{e.Package, e.Test}
		switch e.Action {
		case "output":
			if said[t] == nil {
				said[t] = &bytes.Buffer{}
			}
			said[t].WriteString(e.Output)
		case "build-output":
			io.WriteString(w, e.Output)
		case "pass", "fail", "skip":
			o.ended[t] = e.Action
			switch {
			case t.name == "":
			case e.Action == "skip":
				o.tally.skip(text(said[t]))
			default:
				o.tally.Ran++
				if !strings.Contains(t.name, "/") {
					o.tally.time(timed{t.String(), e.Elapsed})
				}
			}
			if e.Action == "fail" {
				o.passed = false
				o.failed = append(o.failed, t)
				o.said[t] = text(said[t])
				if t.name != "" {
					io.WriteString(w, o.said[t])
				}
			}
			if t.name == "" {
				o.cutShort(t.pkg, said, w)
				printPackage(w, e.Action, text(said[t]))
			}
			delete(said, t)
		}
		if last {
			return o, nil
		}
	}
}

// cutShort prints the output of tests that were running when their package ended, for example by a panic or a timeout, and adds it to the
// package's.
func (o *outcome) cutShort(pkg string, said map[test]*bytes.Buffer, w io.Writer) {
	for t, b := range said {
		if t.pkg == pkg && t.name != "" {
			io.WriteString(w, text(b))
			o.said[test{pkg: pkg}] += text(b)
			delete(said, t)
		}
	}
}

func text(b *bytes.Buffer) string {
	if b == nil {
		return ""
	}
	return b.String()
}

// printPackage prints what a package printed outside its tests: everything if it failed, and otherwise go test's closing line.
func printPackage(w io.Writer, action, said string) {
	if action == "fail" {
		io.WriteString(w, said)
		return
	}
	for line := range strings.Lines(said) {
		if strings.HasPrefix(line, "ok ") || strings.HasPrefix(line, "? ") {
			fmt.Fprint(w, line)
		}
	}
}

// tally counts the tests of one or several runs of go test, including subtests.
type tally struct {
	Ran     int
	Skipped map[string]int // by the reason they gave
	Slowest []timed        // tests, without subtests; slowest first, at most mostTimed
}

// mostTimed is enough to see what a run spends its time on.
const mostTimed = 10

// timed holds how long a test took, in seconds.
type timed struct {
	Test    string
	Seconds float64
}

// time records how long tests took.
func (c *tally) time(tests ...timed) {
	c.Slowest = append(c.Slowest, tests...)
	slices.SortStableFunc(c.Slowest, func(a, b timed) int { return cmp.Compare(b.Seconds, a.Seconds) })
	c.Slowest = c.Slowest[:min(len(c.Slowest), mostTimed)]
}

// beforeReason matches what package testing writes before a line of a test's log, or testscript before a script's reason to skip.
var beforeReason = regexp.MustCompile(`^\s+(\w+\.go:\d+: |> (\[.*\] )?skip )`)

// skip counts a skipped test with the given output.
func (c *tally) skip(said string) {
	reason := "no reason given"
	for line := range strings.Lines(said) {
		if at := beforeReason.FindString(line); at != "" {
			reason = strings.Trim(strings.TrimSpace(line[len(at):]), "'")
		}
	}
	if c.Skipped == nil {
		c.Skipped = map[string]int{}
	}
	c.Skipped[reason]++
}

// keep appends the tally to a file, as a line.
func (c tally) keep(path string) error {
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return addLine(path, string(text))
}

// readTally adds up the tallies in a file.
func readTally(path string) (tally, error) {
	sum := tally{Skipped: map[string]int{}}
	lines, err := readLines(path)
	if err != nil {
		return sum, fmt.Errorf("read how many tests ran: %w", err)
	}
	for _, line := range lines {
		var c tally
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			return sum, fmt.Errorf("read how many tests ran: %s: %w", path, err)
		}
		sum.Ran += c.Ran
		sum.time(c.Slowest...)
		for reason, n := range c.Skipped {
			sum.Skipped[reason] += n
		}
	}
	return sum, nil
}

// String formats the tally as one line, with the most frequent reasons first.
func (c tally) String() string {
	skipped := 0
	var why []string
	for _, reason := range slices.SortedFunc(maps.Keys(c.Skipped), func(a, b string) int {
		return cmp.Or(cmp.Compare(c.Skipped[b], c.Skipped[a]), strings.Compare(a, b))
	}) {
		skipped += c.Skipped[reason]
		why = append(why, fmt.Sprintf("%d: %s", c.Skipped[reason], reason))
	}
	if skipped == 0 {
		return fmt.Sprintf("%d tests ran, none was skipped", c.Ran)
	}
	return fmt.Sprintf("%d tests ran, %d were skipped (%s)", c.Ran, skipped, strings.Join(why, "; "))
}

// printTally prints the sum of the tallies in a file.
func printTally(path string, w io.Writer) error {
	sum, err := readTally(path)
	if err != nil {
		return err
	}
	fmt.Fprintln(w, "\nslowest:")
	for _, t := range sum.Slowest {
		fmt.Fprintf(w, "%7.1f s  %s\n", t.Seconds, t.Test)
	}
	_, err = fmt.Fprintln(w, sum)
	return err
}
