package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// tally counts the tests of one or several runs of go test, subtests included.
type tally struct {
	Ran     int
	Skipped map[string]int // by the reason that they gave
	Slowest []timed        // tests, without subtests; the slowest first, and no more than mostTimed
}

// mostTimed is enough to see what a run spends its time on.
const mostTimed = 10

// timed is how long a test took, in seconds.
type timed struct {
	Test    string
	Seconds float64
}

// time notes how long tests took.
func (c *tally) time(tests ...timed) {
	c.Slowest = append(c.Slowest, tests...)
	slices.SortStableFunc(c.Slowest, func(a, b timed) int { return cmp.Compare(b.Seconds, a.Seconds) })
	c.Slowest = c.Slowest[:min(len(c.Slowest), mostTimed)]
}

// place is what package testing writes before a line of a test's log.
var place = regexp.MustCompile(`^\s+\w+\.go:\d+: `)

// skip counts a skipped test, which printed said.
func (c *tally) skip(said string) {
	reason := "no reason given"
	for line := range strings.Lines(said) {
		if at := place.FindString(line); at != "" {
			reason = strings.TrimSpace(line[len(at):])
		}
	}
	if c.Skipped == nil {
		c.Skipped = map[string]int{}
	}
	c.Skipped[reason]++
}

// keep adds the tally to a file, as a line.
func (c tally) keep(path string) error {
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return addLine(path, string(text))
}

// readTally sums up what runs have kept in a file.
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

// String is one line, with the reasons that most tests gave first.
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

// printTally prints what runs have kept in a file.
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
