package text

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Table prints rows aligned and coloured under a heading on a terminal, and as tab-separated
// values without a heading into a pipe.
type Table struct {
	w                 io.Writer
	terminal, colours bool
	rows              [][]string // on a terminal: all of them, the heading first
}

// NewTable begins a table. colours are for a terminal alone.
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
		cleaned[i] = Clean(c) // a cell is one line that does nothing to a terminal, whatever Slurm or a file said
	}
	if t.terminal {
		t.rows = append(t.rows, cleaned)
		return
	}
	fmt.Fprintln(t.w, strings.Join(cleaned, "\t"))
}

// Flush prints what had to wait for the width of its columns.
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

// paint colours a heading, and the words that say how something stands.
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

// Size is a number of bytes: in a unit on a terminal, as it is in a pipe.
func (t *Table) Size(n int64) string {
	if !t.terminal || n < 1<<10 {
		return strconv.FormatInt(n, 10)
	}
	return Bytes(uint64(n))
}

// Bytes is a size in a sentence, where no heading says that it is one.
func (t *Table) Bytes(n int64) string {
	if t.terminal {
		return Bytes(uint64(n))
	}
	return Plural(n, "byte")
}

// Bytes is a number of bytes for people.
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
