package exposition

import (
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"ddpbatch/internal/goodput"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/text"
)

var digits = Labels{Job: "digits", ID: "12_3", Run: "digits-20261121-101500-1a2b3c4d-3"}

// trained returns the figures of a run that was restarted once.
func trained() figures {
	return figures{
		attempt: 2, restarts: 1,
		newest: &rundir.Metrics{
			Time: time.Date(2026, 11, 21, 12, 0, 0, 250e6, time.UTC), Attempt: 2, Step: 1234567, Steps: 2000000, SamplesPerSec: 812.5,
		},
		time: goodput.Breakdown{
			Queued: 90 * time.Second, Starting: 1500 * time.Millisecond, Productive: time.Hour, Saving: 2 * time.Second,
			Lost: map[string]time.Duration{"timeout": 10 * time.Second, "hang": 1800 * time.Second}, Other: time.Nanosecond,
		},
	}
}

// The expected texts are written by hand, following the two specifications.
const (
	labels  = `job_id="12_3",job_name="digits",run="digits-20261121-101500-1a2b3c4d-3"`
	attempt = "# HELP ddpbatch_attempt Number of the newest attempt.\n# TYPE ddpbatch_attempt gauge\nddpbatch_attempt{" + labels + "} 2\n"
	rest    = `# HELP ddpbatch_step Newest step in the run's metrics.
# TYPE ddpbatch_step gauge
ddpbatch_step{` + labels + `} 1234567
# HELP ddpbatch_steps_planned Steps that there will be.
# TYPE ddpbatch_steps_planned gauge
ddpbatch_steps_planned{` + labels + `} 2000000
# HELP ddpbatch_step_timestamp_seconds When the newest step was written, in seconds since 1970.
# TYPE ddpbatch_step_timestamp_seconds gauge
ddpbatch_step_timestamp_seconds{` + labels + `} 1795262400.25
# HELP ddpbatch_samples_per_second Samples that all ranks together train on in a second.
# TYPE ddpbatch_samples_per_second gauge
ddpbatch_samples_per_second{` + labels + `} 812.5
# HELP ddpbatch_time_seconds Where the time of the run went since its submission. Productive time can become lost.
# TYPE ddpbatch_time_seconds gauge
ddpbatch_time_seconds{` + labels + `,phase="queued"} 90
ddpbatch_time_seconds{` + labels + `,phase="starting"} 1.5
ddpbatch_time_seconds{` + labels + `,phase="productive"} 3600
ddpbatch_time_seconds{` + labels + `,phase="saving"} 2
ddpbatch_time_seconds{` + labels + `,phase="lost"} 1810
ddpbatch_time_seconds{` + labels + `,phase="unknown"} 0
ddpbatch_time_seconds{` + labels + `,phase="other"} 0
# HELP ddpbatch_lost_seconds Time that was lost, by the cause that ended the attempt.
# TYPE ddpbatch_lost_seconds gauge
ddpbatch_lost_seconds{` + labels + `,cause="hang"} 1800
ddpbatch_lost_seconds{` + labels + `,cause="timeout"} 10
`
	restartsHelp = "Attempts that have begun, less the first: requeues, resumes and restarts within a job.\n"
)

func TestTextIsThatOfTheSpecifications(t *testing.T) {
	for as, want := range map[format]string{
		prometheus: attempt + "# HELP ddpbatch_restarts_total " + restartsHelp + "# TYPE ddpbatch_restarts_total counter\n" +
			"ddpbatch_restarts_total{" + labels + "} 1\n" + rest,
		openMetrics: attempt + "# HELP ddpbatch_restarts " + restartsHelp + "# TYPE ddpbatch_restarts counter\n" +
			"ddpbatch_restarts_total{" + labels + "} 1\n" + rest + "# EOF\n",
	} {
		got := trained().write(as, digits.list())
		if string(got) != want {
			t.Errorf("%s:\n%s\nwant\n%s", as.contentType(), got, want)
		}
		if got := values(t, got, as, digits); got["ddpbatch_lost_seconds/hang"] != 1800 ||
			got["ddpbatch_restarts_total"] != 1 || len(got) != 15 {
			t.Errorf("%s: %v", as.contentType(), got)
		}
	}
}

// An unknown figure is omitted: 0 would be a figure.
func TestUnknownFiguresAreLeftOut(t *testing.T) {
	known := func(f figures) (names []string) {
		for _, f := range f.families() {
			names = append(names, f.name)
		}
		return names
	}
	tests := map[string]struct {
		change func(f *figures)
		want   string
	}{
		"nothing is known": {func(f *figures) { *f = figures{} }, "attempt restarts time_seconds"},
		"a step alone":     {func(f *figures) { *f.newest = rundir.Metrics{} }, "attempt restarts step time_seconds lost_seconds"},
		"an older attempt's": {func(f *figures) { f.newest.Attempt = 1 },
			"attempt restarts step steps_planned step_timestamp_seconds time_seconds lost_seconds"},
		"nothing was lost yet": {func(f *figures) { f.time.Lost = nil },
			"attempt restarts step steps_planned step_timestamp_seconds samples_per_second time_seconds"},
	}
	for name, test := range tests {
		f := trained()
		test.change(&f)
		if got := strings.Join(known(f), " "); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

// FuzzText: whatever the names and numbers are, the text follows the grammar, and a reader gets the same names and numbers.
func FuzzText(f *testing.F) {
	f.Add("digits", "12", "digits-1", int64(3), 812.5, int64(time.Hour))
	f.Add("a\\b", "\"\n\"", "\xff\u202e,}", int64(1<<53-1), math.SmallestNonzeroFloat64, int64(-1))
	f.Add(strings.Repeat("é", 200), "", "{", int64(0), math.MaxFloat64, int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, job, id, run string, step int64, rate float64, lost int64) {
		if math.IsNaN(rate) || math.IsInf(rate, 0) || step < 0 || step >= 1<<53 {
			return // rundir.LastMetrics does not return such values
		}
		figures := trained()
		figures.newest.Step, figures.newest.SamplesPerSec = step, rate
		figures.time.Lost = map[string]time.Duration{run: time.Duration(lost)}
		shown := func(value string) string {
			return strings.ToValidUTF8(text.Cut(text.Clean(value), maxLabel), "\ufffd")
		}
		for _, as := range []format{prometheus, openMetrics} {
			text := figures.write(as, Labels{job, id, run}.list())
			samples, err := parse(string(text), as)
			if err != nil {
				t.Fatalf("%v in\n%s", err, text)
			}
			for _, p := range samples {
				if !sameRunes(p.labels["job_name"], shown(job)) || !sameRunes(p.labels["job_id"], shown(id)) ||
					!sameRunes(p.labels["run"], shown(run)) {
					t.Fatalf("%q is read of %q, %q, %q", p.labels, job, id, run)
				}
				if p.name == "ddpbatch_step" && p.value != float64(step) || p.name == "ddpbatch_samples_per_second" && p.value != rate {
					t.Fatalf("%s is %v of %v and %v", p.name, p.value, step, rate)
				}
			}
		}
	})
}

// sameRunes compares texts, but ignores how many characters replace bytes that are not UTF-8: ToValidUTF8 replaces several by one.
func sameRunes(a, b string) bool {
	squeeze := func(s string) string {
		for strings.Contains(s, "\ufffd\ufffd") {
			s = strings.ReplaceAll(s, "\ufffd\ufffd", "\ufffd")
		}
		return s
	}
	return utf8.ValidString(a) && squeeze(a) == squeeze(b)
}
