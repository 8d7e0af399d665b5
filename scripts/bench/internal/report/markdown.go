package report

import (
	"fmt"
	"io"
	"strings"
)

// Markdown writes a table whose columns are aligned as text, too; all of them to the right.
func Markdown(w io.Writer, titles []string, rows [][]string) {
	widths := make([]int, len(titles))
	for _, row := range append([][]string{titles}, rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], len(cell))
		}
	}
	rule := make([]string, len(titles))
	for i, width := range widths {
		rule[i] = strings.Repeat("-", width-1) + ":"
	}
	for _, row := range append([][]string{titles, rule}, rows...) {
		for i, cell := range row {
			fmt.Fprintf(w, "| %*s ", widths[i], cell)
		}
		fmt.Fprintln(w, "|")
	}
}
