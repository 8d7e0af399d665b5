package goodput

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/rundir"
)

// A long attempt is summarized in few lines. They tell where the attempt was at each step as well as all lines would.
func TestLongAttemptIsKnownByFewLines(t *testing.T) {
	const lines = 20_000
	p := progress{attempts: map[int]*training{}}
	must(t, p.lines(strings.NewReader(trained(130, 1, 10, 10*lines))))
	tr := p.attempts[1]
	if len(tr.marks) > maxMarks || tr.lastStep() != 10*lines || p.firstStep(tr) != 0 || !p.began(tr).Equal(at(120)) {
		t.Fatalf("%d marks, from step %d to %d, begun at %v", len(tr.marks), p.firstStep(tr), tr.lastStep(), p.began(tr))
	}
	for _, step := range []int64{0, 1, 77, 1234, 99_999, 10 * lines} {
		if got, _ := p.reached(tr, step); math.Abs(got.Sub(at(120+float64(step))).Seconds()) > 0.01 {
			t.Errorf("step %d at %v, want %v", step, got, at(120+float64(step)))
		}
	}
}

// Following a file that grows gives the same result as reading it at once.
func TestFollowedMetricsAreThoseReadAtOnce(t *testing.T) {
	events := []rundir.Event{submit(0, "7"), begin(100, 1, "7", 0), end(225, 1, "crash"),
		event(227, rundir.EventRestart, 1), begin(228, 2, "7", 0)}
	text := trained(130, 1, 10, 100) + trained(255, 2, 60, 120, `,"resume_step":50`)
	run := made(t, events, "")
	var accounts Accounts
	f, err := os.OpenFile(filepath.Join(run.Path(), "metrics.jsonl"), os.O_CREATE|os.O_WRONLY, 0o600)
	must(t, err)
	defer f.Close()
	for i := 0; i < len(text); i += 37 { // so that lines are cut
		_, err := f.WriteString(text[i:min(i+37, len(text))])
		must(t, err)
		_, err = accounts.Of(run, false, at(330))
		must(t, err)
	}
	got, err := accounts.Of(run, false, at(330))
	must(t, err)
	want, err := new(Accounts).Of(run, false, at(330))
	must(t, err)
	if parts(got) != parts(want) || parts(got) != "queued 100, starting 20, productive 135, lost/crash 75" {
		t.Errorf("followed: %q, at once: %q", parts(got), parts(want))
	}
}

// What was read once is not read again, so that a user who watches a run does not cause all of its metrics to be read each time.
func TestOnlyWhatHasComeSinceIsRead(t *testing.T) {
	before, since := trained(130, 1, 10, 100), trained(230, 1, 110, 150)
	run := made(t, []rundir.Event{submit(0, "7"), begin(100, 1, "7", 0)}, before)
	var accounts Accounts
	_, err := accounts.Of(run, false, at(225))
	must(t, err)
	must(t, os.WriteFile(run.MetricsPath(), []byte(strings.Repeat("x", len(before)-1)+"\n"+since), 0o600))
	again, err := rundir.Open(run.Path()) // as a command opens it when it is asked again
	must(t, err)
	got, err := accounts.Of(again, false, at(280))
	must(t, err)
	if want := "queued 100, starting 20, productive 160"; parts(got) != want {
		t.Errorf("the parts are %q, want %q", parts(got), want)
	}
}

// If it is unknown what a run did, the sentence says what is missing.
func TestSentenceSaysWhatIsMissing(t *testing.T) {
	const rest = ": queued for 1m40s, then 10s with 2 nodes: unknown 10s"
	for metrics, want := range map[string]string{
		"":                          "the run wrote no metrics",
		"{\"step\":3,\"loss\":1}\n": "no line of metrics.jsonl has both attempt and time (RFC 3339)",
		"{\"step\":3,\"attempt\":1}\n{\"step\":3,\"attempt\":1,\"time\":3.5}\n": "no line of metrics.jsonl has both " +
			"attempt and time (RFC 3339)",
	} {
		run := made(t, []rundir.Event{submit(0, "7"), begin(100, 1, "7", 0)}, metrics)
		got, err := new(Accounts).Of(run, false, at(110))
		must(t, err)
		if want = "goodput unknown, as " + want + rest; got.String() != want {
			t.Errorf("%s: %q, want %q", metrics, got, want)
		}
	}
}

// If it is known only for some elements of an array what they did, the sentence says so.
func TestSentenceOfAnArrayThatIsKnownInPart(t *testing.T) {
	for metrics, want := range map[string]string{
		"":                          "some elements wrote no metrics",
		"{\"step\":3,\"loss\":1}\n": "for some elements no line of metrics.jsonl has both attempt and time (RFC 3339)",
	} {
		array := made(t, nil, "")
		for index, lines := range []string{trained(130, 1, 10, 100), metrics} {
			element, err := array.Task(index)
			must(t, err)
			must(t, os.MkdirAll(element.Path(), 0o700))
			must(t, element.Append(begin(100, 1, "7", 0)))
			if lines != "" {
				must(t, os.WriteFile(element.MetricsPath(), []byte(lines), 0o600))
			}
		}
		got, err := new(Accounts).Of(array, false, at(225))
		must(t, err)
		if got.Why != want {
			t.Errorf("%s: it is unknown as %q, want %q", metrics, got.Why, want)
		}
	}
}

// A job that waits does not have nodes yet.
func TestSentenceOfAJobThatWaits(t *testing.T) {
	got, err := new(Accounts).Of(made(t, []rundir.Event{submit(0, "7")}, ""), false, at(50))
	must(t, err)
	if want := "goodput not known yet: queued for 50s"; got.String() != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// FuzzPartsAddUp: whatever the ledger and the metrics hold, no part is negative, and no time is counted twice or left out.
func FuzzPartsAddUp(f *testing.F) {
	f.Add([]byte("\x00\x05\x10\x15\x20\x25"), trained(130, 1, 10, 60)+trained(200, 2, 40, 90))
	names := []string{rundir.EventSubmit, rundir.EventBegin, rundir.EventEnd, rundir.EventRestart, rundir.EventRequeue, rundir.EventGiveUp,
		rundir.EventResume, rundir.EventCancel, rundir.EventLink, rundir.EventLinkEnd, rundir.EventRefused}
	f.Fuzz(func(t *testing.T, ledger []byte, metrics string) {
		var events []rundir.Event
		for i := 0; i+3 < len(ledger); i += 4 {
			e := event(float64(ledger[i+1])*3, names[int(ledger[i])%len(names)], int(ledger[i+2])%4)
			e.Job, e.Detail, e.Cause = string('0'+ledger[i+3]%3), "job "+string('0'+ledger[i+3]%3),
				[]string{"done", "crash", "", "x"}[ledger[i+3]>>2%4]
			events = append(events, e)
		}
		p := progress{attempts: map[int]*training{}}
		if p.lines(strings.NewReader(metrics)) != nil {
			return
		}
		start, now := noon, at(900)
		b := account(events, &p, 0, 2, start, now)
		for _, part := range []time.Duration{b.Queued, b.Starting, b.Productive, b.Saving, b.LostTime(), b.Unknown, b.Other, b.Idle} {
			if part < 0 {
				t.Fatalf("a part is negative: %+v", b)
			}
		}
		if all := b.Total() + b.Idle; all > now.Sub(start) || b.Open && all != now.Sub(start) {
			t.Errorf("the parts are %v of %v: %+v", all, now.Sub(start), b)
		}
	})
}
