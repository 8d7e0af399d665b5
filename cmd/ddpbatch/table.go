package main

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"ddpbatch/internal/text"
)

// table prints rows aligned and coloured under a heading on a terminal, and as tab-separated
// values without a heading into a pipe.
type table struct {
	e        *env
	terminal bool
	rows     [][]string // on a terminal: all of them, the heading first
}

func newTable(e *env, heading ...string) *table {
	t := &table{e: e}
	if _, t.terminal = e.Terminal(e.Out); t.terminal {
		t.Row(heading...)
	}
	return t
}

func (t *table) Row(cells ...string) {
	cleaned := make([]string, len(cells))
	for i, c := range cells {
		cleaned[i] = clean(c) // a cell is one line that does nothing to a terminal, whatever Slurm or a file said
	}
	if t.terminal {
		t.rows = append(t.rows, cleaned)
		return
	}
	fmt.Fprintln(t.e.Out, strings.Join(cleaned, "\t"))
}

// Flush prints what had to wait for the width of its columns.
func (t *table) Flush() error {
	if !t.terminal {
		return nil
	}
	widths := make([]int, len(t.rows[0]))
	for _, row := range t.rows {
		for i, cell := range row {
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
		if _, err := fmt.Fprintln(t.e.Out, line.String()); err != nil {
			return err
		}
	}
	return nil
}

// paint colours a heading, and the words that say how something stands; NO_COLOR (no-color.org) and a
// terminal without colours leave them as they are.
func (t *table) paint(cell string, heading bool) string {
	code := ""
	switch {
	case t.e.get("NO_COLOR") != "" || t.e.get("TERM") == "dumb":
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
func (t *table) Size(n int64) string {
	if !t.terminal || n < 1<<10 {
		return strconv.FormatInt(n, 10)
	}
	value, unit := float64(n), -1
	for ; value >= 1<<10 && unit < len("KMGTPE")-1; unit++ {
		value /= 1 << 10
	}
	return fmt.Sprintf("%.4g %ciB", value, "KMGTPE"[unit])
}

// Bytes is a size in a sentence, where no heading says that it is one.
func (t *table) Bytes(n int64) string {
	if !t.terminal || n < 1<<10 {
		return strconv.FormatInt(n, 10) + " bytes"
	}
	return t.Size(n)
}

func clean(line string) string { return text.Clean(line) }
