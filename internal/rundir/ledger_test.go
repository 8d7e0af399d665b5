package rundir

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestLedgerReturnsItsEvents(t *testing.T) {
	d := create1(t, t.TempDir(), "x")
	if events, err := d.Ledger(); len(events) != 0 || err != nil {
		t.Errorf("before: %v, %v", events, err)
	}
	want := []Event{
		{Time: noon, Event: "submit", Detail: "job 5"},
		{Time: noon.Add(time.Second), Event: "end", Attempt: 1, Cause: "crash", Node: "n2", Step: 40, Detail: "two\nlines"},
	}
	for _, e := range want {
		must(t, d.Append(e))
	}
	if got, err := d.Ledger(); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("ledger is %+v, %v", got, err)
	}
	path := filepath.Join(d.Path(), "ledger.jsonl")
	if text, _ := os.ReadFile(path); strings.Count(string(text), "\n") != 2 {
		t.Errorf("ledger is %q", text)
	}
	// A crash in the middle of a line loses only that line.
	info, err := os.Stat(path)
	must(t, err)
	must(t, os.Truncate(path, info.Size()-7))
	if got, err := d.Ledger(); err != nil || !reflect.DeepEqual(got, want[:1]) {
		t.Errorf("ledger with a cut line is %+v, %v", got, err)
	}
	must(t, d.Append(Event{Event: "resume", Detail: strings.Repeat("é", maxDetail)}))
	got, err := d.Ledger()
	must(t, err)
	if len(got) != 2 || got[1].Event != "resume" || got[1].Detail != strings.Repeat("é", maxDetail/2) {
		t.Errorf("ledger after the cut line is %.200v", got)
	}
	must(t, os.Truncate(path, maxLedger+1)) // sparse
	if _, err := d.Ledger(); err == nil {
		t.Error("a ledger past the limit was read")
	}
}

// A ledger with very many short lines is refused before it is read, because each line would become an event in memory.
func TestLedgerOfTooManyLinesIsRefused(t *testing.T) {
	d := create1(t, t.TempDir(), "x")
	line := `{"event":"e"}` + "\n"
	must(t, os.WriteFile(filepath.Join(d.Path(), "ledger.jsonl"), []byte(strings.Repeat(line, 5<<20/len(line))), 0o600))
	if events, err := d.Ledger(); err == nil || !strings.Contains(err.Error(), "more than 4194304 bytes") {
		t.Errorf("%d events, %v; want an error with the bound", len(events), err)
	}
}

func TestLedgerLinesStayWhole(t *testing.T) {
	d := create1(t, t.TempDir(), "x")
	const writers, each = 4, 25
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range each {
				if err := d.Append(Event{Event: "begin", Detail: strings.Repeat("d", 3000)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if events, err := d.Ledger(); err != nil || len(events) != writers*each {
		t.Errorf("%d events, %v; want %d", len(events), err, writers*each)
	}
}

// TestLedgerIsLocked: a process that adds a line waits while another process does, because O_APPEND alone does not make them take turns on
// NFS. It does not wait forever, and it does not wait if the file system has no locks.
func TestLedgerIsLocked(t *testing.T) {
	d := create1(t, t.TempDir(), "x")
	must(t, d.Append(Event{Event: "submit"}))
	path := filepath.Join(d.Path(), "ledger.jsonl")
	synctest.Test(t, func(t *testing.T) {
		other, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
		must(t, err)
		defer other.Close()
		if err := lock(other); err != nil {
			t.Skip("this file system has no locks:", err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := d.Append(Event{Event: "begin"}); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(lockLimit / 2) // by the clock of the synctest bubble
		_, err = other.WriteString(`{"event":"cancel"}` + "\n")
		must(t, errors.Join(err, other.Close()))
		wg.Wait()

		other, err = os.OpenFile(path, os.O_RDWR, 0) // a process that stands still
		must(t, err)
		defer other.Close()
		must(t, lock(other))
		begun := time.Now()
		must(t, d.Append(Event{Event: "end"}))
		if took := time.Since(begun); took != lockLimit {
			t.Errorf("a line that nobody made room for took %v, want %v", took, lockLimit)
		}
	})
	events, err := d.Ledger()
	must(t, err)
	var names []string
	for _, e := range events {
		names = append(names, e.Event)
	}
	if want := []string{"submit", "cancel", "begin", "end"}; !reflect.DeepEqual(names, want) {
		t.Errorf("ledger %q, want %q", names, want)
	}
}

func FuzzLedger(f *testing.F) {
	f.Add([]byte(`{"event":"submit"}` + "\n" + `{"event":"end","attempt":1}` + "\n"))
	f.Add([]byte(`{"event":"submit"}` + "\n" + `{"event":"en`))
	f.Fuzz(func(t *testing.T, data []byte) {
		events := parseLedger(data)
		if len(events) > bytes.Count(data, []byte{'\n'})+1 {
			t.Fatalf("%d events out of %q", len(events), data)
		}
		// One more line gives one more event, whatever precedes it.
		more := append(bytes.Clone(data), "\n{\"event\":\"end\"}\n"...)
		if got := parseLedger(more); len(got) != len(events)+1 || got[len(got)-1].Event != "end" {
			t.Fatalf("%d events, then %d", len(events), len(got))
		}
	})
}

func TestSpansAreTheIndicesOfASubmission(t *testing.T) {
	for _, test := range []struct {
		indices []int
		spans   [][2]int
	}{{nil, nil}, {[]int{4}, [][2]int{{4, 4}}}, {[]int{0, 1, 2, 5, 7, 8}, [][2]int{{0, 2}, {5, 5}, {7, 8}}}} {
		if got := SpansOf(test.indices); !slices.Equal(got, test.spans) {
			t.Errorf("%v are %v, want %v", test.indices, got, test.spans)
		}
		if got := (Event{Spans: test.spans}).Indices(); !slices.Equal(got, test.indices) {
			t.Errorf("%v are %v, want %v", test.spans, got, test.indices)
		}
	}
	one := 3
	if got := (Event{Element: &one}).Indices(); !slices.Equal(got, []int{3}) {
		t.Error(got)
	}
	if got := (Event{Spans: [][2]int{{5, 2}, {0, math.MaxInt}}}).Indices(); len(got) != maxIndices { // in a ledger of another user
		t.Errorf("%d indices", len(got))
	}
}
