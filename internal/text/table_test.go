package text

import (
	"bytes"
	"math"
	"testing"
)

func testTable(terminal bool) string {
	var out bytes.Buffer
	t := NewTable(&out, terminal, false, "JOB", "WHY")
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

func TestTableAlignsAndCleansCells(t *testing.T) {
	if got, want := testTable(false), "12\ttwo cells no [31m  2J \n1234567\té\n"; got != want {
		t.Errorf("pipe: %q, want %q", got, want)
	}
	if got, want := testTable(true), "JOB      WHY\n12       two cells no [31m  2J \n1234567  é\n"; got != want {
		t.Errorf("terminal: %q, want %q", got, want)
	}
}

// Rows may have more cells than the heading, or fewer.
func TestTableOfUnevenRows(t *testing.T) {
	var out bytes.Buffer
	table := NewTable(&out, true, false, "JOB", "WHY")
	table.Row("1", "a", "more")
	table.Row("2")
	if err := table.Flush(); err != nil {
		t.Fatal(err)
	}
	if want := "JOB  WHY\n1    a    more\n2\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

func TestTableColoursStates(t *testing.T) {
	var out bytes.Buffer
	table := NewTable(&out, true, true, "STATE", "LOSS")
	table.Row("FAILED", "1")
	table.Row("COMPLETED", "2")
	table.Row("SIGNALING", "3")
	if err := table.Flush(); err != nil {
		t.Fatal(err)
	}
	// the columns are aligned, because the colors take no space on the screen
	want := "\x1b[1mSTATE\x1b[0m      \x1b[1mLOSS\x1b[0m\n\x1b[31mFAILED\x1b[0m     1\n\x1b[32mCOMPLETED\x1b[0m  " +
		"2\n\x1b[36mSIGNALING\x1b[0m  3\n"
	if out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

func TestSizesHaveUnitsOnATerminal(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 1023: "1023", 1 << 10: "1 KiB", 1536: "1.5 KiB", 5 << 30: "5 GiB",
		math.MaxInt64: "8 EiB"} {
		if got := (&Table{terminal: true}).Size(n); got != want {
			t.Errorf("%d bytes are %q, want %q", n, got, want)
		}
	}
	if got := (&Table{}).Size(1 << 20); got != "1048576" {
		t.Errorf("in a pipe: %q", got)
	}
	for want, got := range map[string]string{
		"1 byte": (&Table{}).Bytes(1), "1023 bytes": (&Table{terminal: true}).Bytes(1023),
		"1 KiB": (&Table{terminal: true}).Bytes(1 << 10), "1024 bytes": (&Table{}).Bytes(1 << 10),
	} {
		if got != want {
			t.Errorf("in a sentence: %q, want %q", got, want)
		}
	}
}

func TestBytesHaveUnits(t *testing.T) {
	for n, want := range map[uint64]string{0: "0 bytes", 1: "1 byte", 1023: "1023 bytes", 65536: "64 KiB", 8 << 20: "8 MiB",
		3 << 29: "1.5 GiB", 1<<64 - 1: "16 EiB"} {
		if got := Bytes(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

func TestFewCountsTheRest(t *testing.T) {
	for _, test := range []struct {
		list []int
		want string
	}{{nil, ""}, {[]int{3}, "3"}, {[]int{3, 1}, "3, 1"}, {[]int{3, 1, 2}, "3, 1 and 1 more"}} {
		if got := Few(test.list, 2); got != test.want {
			t.Errorf("%v: %q, want %q", test.list, got, test.want)
		}
	}
}
