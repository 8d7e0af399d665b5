package rundir

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
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
		Requeue: true, Message: "rank 3 …", Time: noon,
		Round:  1,
		Ranks:  []RankEnd{{Rank: 3, Host: "n2", Signal: 9}, {Rank: 0, Host: "n1", Exit: 1, Followed: true}},
		Report: "one\ntwo", OOM: true, Saved: true, Nodes: []string{"n2"}, Restart: true, WarnedS: 61.5, LeadS: 120}
	must(t, d.WriteVerdict(Verdict{Attempt: n}))
	must(t, d.WriteVerdict(want))
	if got, err := d.Verdict(n); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("verdict is %+v, %v; want %+v", got, err, want)
	}
	// The names that docs/cli.md gives to scripts.
	text, err := os.ReadFile(filepath.Join(d.Path(), "attempts", "1", "verdict.json"))
	must(t, err)
	for _, key := range []string{"attempt", "cause", "first_rank", "host", "exit", "signal", "step", "requeue"} {
		if !strings.Contains(string(text), fmt.Sprintf("%q:", key)) {
			t.Errorf("verdict.json has no %s: %s", key, text)
		}
	}
	// A rank that a signal killed has no exit code: 0 would look like success.
	var read struct {
		Ranks []map[string]any `json:"ranks"`
	}
	must(t, json.Unmarshal(text, &read))
	for i, keys := range []map[string]any{
		{"rank": 3.0, "host": "n2", "signal": 9.0, "followed": false},
		{"rank": 0.0, "host": "n1", "exit": 1.0, "followed": true},
	} {
		if !reflect.DeepEqual(read.Ranks[i], keys) {
			t.Errorf("an end of a rank is written as %v, want %v", read.Ranks[i], keys)
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

// TestVerdictFits: what is written is never more than is read back; what a person can do without goes first.
func TestVerdictFits(t *testing.T) {
	ranks := make([]RankEnd, 30000)
	for i := range ranks {
		ranks[i] = RankEnd{Rank: i, Host: "n2", Signal: 9}
	}
	nodes := make([]string, 100000)
	for i := range nodes {
		nodes[i] = fmt.Sprintf("node%d", i)
	}
	line := strings.Repeat("é", 1<<20)
	for name, v := range map[string]Verdict{
		"report":            {Report: line},
		"ranks":             {Report: "short", Ranks: ranks},
		"message":           {Message: line, Report: "short"},
		"nodes":             {Nodes: nodes, Report: "short"},
		"all of them":       {Message: line, Report: line, Nodes: nodes, Ranks: ranks},
		"many times longer": {Message: strings.Repeat("\x01", 3<<20)},
	} {
		t.Run(name, func(t *testing.T) {
			d := create1(t, t.TempDir(), "x")
			_, err := d.ClaimAttempt()
			must(t, err)
			v.Attempt, v.Cause, v.Exit, v.Saved = 1, "stopped", 75, true
			must(t, d.WriteVerdict(v))
			got, err := d.Verdict(1)
			must(t, err)
			if got.Cause != "stopped" || got.Exit != 75 || !got.Saved {
				t.Errorf("read back: %.300v", got)
			}
			if len(v.Report) == 5 && got.Report != v.Report {
				t.Errorf("a report that was not too long is %q", got.Report)
			}
			for what, kept := range map[string]bool{
				"report": begins(v.Report, got.Report), "message": begins(v.Message, got.Message),
				"ranks": len(v.Ranks) == 0 || len(got.Ranks) > 0 && reflect.DeepEqual(got.Ranks, v.Ranks[:len(got.Ranks)]),
				"nodes": len(v.Nodes) == 0 || len(got.Nodes) > 0 && reflect.DeepEqual(got.Nodes, v.Nodes[:len(got.Nodes)]),
			} {
				if !kept {
					t.Errorf("the %s does not begin as it was", what)
				}
			}
		})
	}
}

// begins tells whether part is the beginning of text, and not nothing of something.
func begins(text, part string) bool {
	return strings.HasPrefix(text, part) && (part != "" || text == "")
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

// A ledger of very many short lines is refused before it is read: each would be an event in memory.
func TestLedgerOfShortLines(t *testing.T) {
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
			loss := 0.25
			want := Metrics{Time: noon, Attempt: 2, Step: tc.want, Steps: 200, Epoch: 1, Loss: &loss, LR: 0.1, SamplesPerSec: 1000, CommShare: 0.125}
			if ok && !reflect.DeepEqual(m, want) {
				t.Errorf("got %+v, want %+v", m, want)
			}
		})
	}
}

// TestLedgerTakesTurns: who adds a line while another process does waits for it, as O_APPEND alone does not make them take turns on NFS; but not
// for ever, and not where the file system has no locks.
func TestLedgerTakesTurns(t *testing.T) {
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
		time.Sleep(turnLimit / 2) // of the bubble's clock
		_, err = other.WriteString(`{"event":"cancel"}` + "\n")
		must(t, errors.Join(err, other.Close()))
		wg.Wait()

		other, err = os.OpenFile(path, os.O_RDWR, 0) // by a process that stands still
		must(t, err)
		defer other.Close()
		must(t, lock(other))
		begun := time.Now()
		must(t, d.Append(Event{Event: "end"}))
		if took := time.Since(begun); took != turnLimit {
			t.Errorf("a line that nobody made room for took %v, want %v", took, turnLimit)
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
