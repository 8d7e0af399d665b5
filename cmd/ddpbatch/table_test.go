package main

import (
	"bytes"
	"io"
	"testing"
)

func testTable(columns int, environ ...string) string {
	var out bytes.Buffer
	e := &env{Out: &out, Environ: environ, Terminal: func(io.Writer) (int, bool) { return columns, columns > 0 }}
	t := newTable(e, "JOB", "WHY")
	cells := []string{"12", "two\tcells\nno\x1b[31m \u009b2J\x7f"}
	t.Row(cells...)
	t.Row("1234567", "é")
	if err := t.Flush(); err != nil {
		panic(err)
	}
	if cells[1][3] != '\t' {
		panic("the caller's cells were changed")
	}
	return out.String()
}

func TestTable(t *testing.T) {
	if got, want := testTable(0), "12\ttwo cells no [31m  2J \n1234567\té\n"; got != want {
		t.Errorf("pipe: %q, want %q", got, want)
	}
	if got, want := testTable(80, "NO_COLOR=1"), "JOB      WHY\n12       two cells no [31m  2J \n1234567  é\n"; got != want {
		t.Errorf("terminal: %q, want %q", got, want)
	}
}

func TestTableColours(t *testing.T) {
	var out bytes.Buffer
	e := &env{Out: &out, Terminal: func(io.Writer) (int, bool) { return 80, true }}
	table := newTable(e, "STATE", "LOSS")
	table.Row("FAILED", "1")
	table.Row("COMPLETED", "2")
	table.Row("SIGNALING", "3")
	if err := table.Flush(); err != nil {
		t.Fatal(err)
	}
	// columns stand below each other, as the colours take no place on the screen
	want := "\x1b[1mSTATE\x1b[0m      \x1b[1mLOSS\x1b[0m\n\x1b[31mFAILED\x1b[0m     1\n\x1b[32mCOMPLETED\x1b[0m  2\n\x1b[36mSIGNALING\x1b[0m  3\n"
	if out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
