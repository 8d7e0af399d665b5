package rundir

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestVerdictIsReadBack(t *testing.T) {
	d := create1(t, t.TempDir(), "x")
	n, err := d.ClaimAttempt()
	must(t, err)
	if _, err := d.Verdict(n); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("before: %v", err)
	}
	want := Verdict{Attempt: n, JobID: "5", Cause: "crash", FirstRank: 3, Host: "n2", Exit: 137, Signal: 9, Step: 40,
		Requeue: true, Message: "rank 3 …", Time: noon,
		Round:  1,
		Ranks:  []RankEnd{{Rank: 3, Host: "n2", Signal: 9}, {Rank: 0, Host: "n1", Exit: 1, Followed: true}},
		Report: "one\ntwo", OOM: true, Saved: true, Nodes: []string{"n2"}, Restart: true, WarnedS: 61.5, LeadS: 120,
		Error: "OSError: …", Class: "infrastructure", Advice: "make room", Final: true, Trace: "00ff"}
	must(t, d.WriteVerdict(Verdict{Attempt: n}))
	must(t, d.WriteVerdict(want))
	if got, err := d.Verdict(n); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("verdict is %+v, %v; want %+v", got, err, want)
	}
	// The names that docs/cli/json.md gives to scripts.
	text, err := os.ReadFile(filepath.Join(d.Path(), "attempts", "1", "verdict.json"))
	must(t, err)
	for _, key := range []string{"attempt", "cause", "first_rank", "host", "exit", "signal", "step", "requeue"} {
		if !strings.Contains(string(text), fmt.Sprintf("%q:", key)) {
			t.Errorf("verdict.json has no %s: %s", key, text)
		}
	}
	// A rank that a signal killed does not have an exit code, because 0 would look like success.
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

// TestVerdictFitsWhatIsReadBack: a verdict is never written longer than what is read back. The parts that a person can do without are
// dropped first.
func TestVerdictFitsWhatIsReadBack(t *testing.T) {
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
		"error and advice":  {Error: line, Advice: line},
		"all of them":       {Message: line, Report: line, Error: line, Advice: line, Nodes: nodes, Ranks: ranks},
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
				"error": begins(v.Error, got.Error), "advice": begins(v.Advice, got.Advice),
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

// begins reports whether part is the beginning of text. An empty part is the beginning of an empty text only.
func begins(text, part string) bool {
	return strings.HasPrefix(text, part) && (part != "" || text == "")
}
