package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// event is a line that go test -json prints (go doc test2json).
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Elapsed float64 // seconds
}

// test names a test or a subtest; name is empty for what belongs to the package alone.
type test struct{ pkg, name string }

func (t test) String() string { return strings.TrimSpace(t.pkg + " " + t.name) }

// outcome is what a run of go test came to.
type outcome struct {
	passed bool
	ended  map[test]string // "pass", "fail" or "skip", of each test and package that ended
	said   map[test]string // what failed tests and packages printed
	failed []test          // in the order in which they ended, packages included
	tally  tally
}

// read takes the events of one run from r. It prints each package when that has ended, as go test does without -v: a
// line for one that passed, and for one that failed what its failed tests printed.
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
			w.Write(line) // standard error's
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

// cutShort prints, and keeps as the package's, what tests said that a package's end found running: a panic, say, or a time-out.
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

// printPackage prints what a package said outside its tests: all of it where it failed, else go test's closing line.
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
