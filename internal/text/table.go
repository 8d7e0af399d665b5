package text

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Table prints rows. On a terminal they are aligned and colored under a heading, and otherwise tab-separated without a heading.
type Table struct {
	w                 io.Writer
	terminal, colours bool
	rows              [][]string // on a terminal: all rows, the heading first
}

// NewTable returns a new table. colours has an effect only on a terminal.
func NewTable(w io.Writer, terminal, colours bool, heading ...string) *Table {
	t := &Table{w: w, terminal: terminal, colours: colours}
	if terminal {
		t.Row(heading...)
	}
	return t
}

// Row adds a row.
func (t *Table) Row(cells ...string) {
	cleaned := make([]string, len(cells))
	for i, c := range cells {
		cleaned[i] = Clean(c) // one line that does not affect a terminal, whatever Slurm or a file returned
	}
	if t.terminal {
		t.rows = append(t.rows, cleaned)
		return
	}
	fmt.Fprintln(t.w, strings.Join(cleaned, "\t"))
}

// Flush prints the rows that had to wait for the width of the columns.
func (t *Table) Flush() error {
	if !t.terminal {
		return nil
	}
	var widths []int
	for _, row := range t.rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for n, row := range t.rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(t.paint(cell, n == 0))
			if i < len(row)-1 {
				line.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
			}
		}
		if _, err := fmt.Fprintln(t.w, line.String()); err != nil {
			return err
		}
	}
	return nil
}

// paint colors a heading, and words for states.
func (t *Table) paint(cell string, heading bool) string {
	code := ""
	switch {
	case !t.colours:
	case heading:
		code = "1" // bold
	case cell == "COMPLETED" || cell == "committed":
		code = "32" // green
	case cell == "RUNNING" || cell == "SIGNALING" || cell == "COMPLETING":
		code = "36" // cyan
	case cell == "PENDING" || cell == "CANCELLED" || cell == "PREEMPTED" || cell == "SUSPENDED" || cell == "partial" || cell == "newer":
		code = "33" // yellow
	case cell == "FAILED" || cell == "TIMEOUT" || cell == "NODE_FAIL" || cell == "OUT_OF_MEMORY" || cell == "BOOT_FAIL" || cell == "broken":
		code = "31" // red
	}
	if code == "" {
		return cell
	}
	return "\x1b[" + code + "m" + cell + "\x1b[0m"
}

// Size formats a number of bytes: with a unit on a terminal, and otherwise as a plain number.
func (t *Table) Size(n int64) string {
	if !t.terminal || n < 1<<10 {
		return strconv.FormatInt(n, 10)
	}
	return Bytes(uint64(n))
}

// Bytes formats a size within a sentence, where no heading gives the unit.
func (t *Table) Bytes(n int64) string {
	if t.terminal {
		return Bytes(uint64(n))
	}
	return Plural(n, "byte")
}

// Bytes formats a number of bytes for people.
func Bytes(n uint64) string {
	if n < 1<<10 {
		return Plural(int(n), "byte")
	}
	value, unit := float64(n), -1
	for ; value >= 1<<10; unit++ {
		value /= 1 << 10
	}
	return fmt.Sprintf("%.4g %ciB", value, "KMGTPE"[unit])
}
