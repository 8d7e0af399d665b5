package reach

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
)

// Row is what one machine found on its way to another.
type Row struct {
	From  string `json:"from"`
	Tries []Try  `json:"tries"`
}

// Matrix tells a person who reached what: a line for each machine and address.
func Matrix(rows []Row) string {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "FROM\tTO\tTRIES\tRESULT")
	for _, row := range rows {
		if len(row.Tries) == 0 {
			fmt.Fprintf(table, "%s\t-\t0\tnothing is known of it\n", word(row.From))
		}
		for _, try := range row.Tries {
			result := "reached in " + try.Took.Round(100*time.Microsecond).String()
			switch {
			case try.Err != "":
				result = word(try.Err)
			case try.Count == 0:
				result = "no answer"
			}
			fmt.Fprintf(table, "%s\t%s\t%d\t%s\n", word(row.From), word(try.Addr), try.Count, result)
		}
	}
	_ = table.Flush() // to memory
	return strings.TrimSuffix(text.String(), "\n")
}

// word keeps what another machine said within its cell.
func word(s string) string {
	const longest = 200
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if len(s) > longest {
		s = strings.ToValidUTF8(s[:longest], "") + "..."
	}
	return s
}
