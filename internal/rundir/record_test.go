package rundir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestVerdict(t *testing.T) {
	d := create1(t, t.TempDir(), "x")
	n, err := d.ClaimAttempt()
	must(t, err)
	if _, err := d.Verdict(n); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("before: %v", err)
	}
	want := Verdict{Attempt: n, JobID: "5", Cause: "signal", FirstRank: 3, Host: "n2", Exit: 137, Signal: 9, Step: 40,
		Requeue: true, Message: "rank 3 …", Time: noon}
	must(t, d.WriteVerdict(Verdict{Attempt: n}))
	must(t, d.WriteVerdict(want))
	if got, err := d.Verdict(n); err != nil || got != want {
		t.Errorf("verdict is %+v, %v; want %+v", got, err, want)
	}
	// The names that DESIGN §5 gives to scripts.
	text, err := os.ReadFile(filepath.Join(d.Path(), "attempts", "1", "verdict.json"))
	must(t, err)
	for _, key := range []string{"attempt", "cause", "first_rank", "host", "exit", "signal", "step", "requeue"} {
		if !strings.Contains(string(text), fmt.Sprintf("%q:", key)) {
			t.Errorf("verdict.json has no %s: %s", key, text)
		}
	}
	for _, bad := range []int{0, -1, 2} { // 2 was never claimed
		if err := d.WriteVerdict(Verdict{Attempt: bad}); err == nil {
			t.Errorf("a verdict of attempt %d was written", bad)
		}
	}
	must(t, os.WriteFile(filepath.Join(d.Path(), "attempts", "1", "verdict.json"), []byte(`{"attempt":`), 0o600))
	if _, err := d.Verdict(1); err == nil {
		t.Error("a cut verdict was read")
	}
}

func TestLedger(t *testing.T) {
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
	// A crash in the middle of a line loses that line and no other.
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

func TestLastMetrics(t *testing.T) {
	line := func(step int) string {
		return fmt.Sprintf(`{"time":"2026-11-21T12:00:00Z","attempt":2,"step":%d,"steps":200,"epoch":1,"loss":0.25,"lr":0.1,"samples_per_s":1e3,"comm_share":0.125}`, step)
	}
	long := strings.Repeat(line(1)+"\n", 1000) // more than what is read
	for name, tc := range map[string]struct {
		text string
		want int64 // 0: none
	}{
		"no file":             {"", 0},
		"one":                 {line(7) + "\n", 7},
		"two":                 {line(7) + "\n" + line(8) + "\n", 8},
		"last line cut":       {line(7) + "\n" + line(8)[:40], 7},
		"without a line end":  {line(7) + "\n" + line(8), 8},
		"only a cut line":     {line(7)[:40], 0},
		"blank lines":         {line(7) + "\n\n\n", 7},
		"zeros after a crash": {line(7) + "\n" + strings.Repeat("\x00", 4096), 7},
		"longer than is read": {long + line(9) + "\n", 9},
		"not an object":       {"null\n7\n\"x\"\n", 0},
	} {
		t.Run(name, func(t *testing.T) {
			d := create1(t, t.TempDir(), "x")
			if name != "no file" {
				must(t, os.WriteFile(d.MetricsPath(), []byte(tc.text), 0o600))
			}
			m, ok, err := d.LastMetrics()
			if err != nil || ok != (tc.want > 0) || m.Step != tc.want {
				t.Fatalf("got %+v, %v, %v; want step %d", m, ok, err, tc.want)
			}
			want := Metrics{Time: noon, Attempt: 2, Step: tc.want, Steps: 200, Epoch: 1, Loss: 0.25, LR: 0.1, SamplesPerSec: 1000, CommShare: 0.125}
			if ok && m != want {
				t.Errorf("got %+v, want %+v", m, want)
			}
		})
	}
}
