package jobenv

import (
	"errors"
	"testing"
	"time"

	"ddpbatch/internal/usage"
)

func TestJobID(t *testing.T) {
	for want, environ := range map[string][]string{
		"":     nil,
		"12":   {"SLURM_JOB_ID=11", "SLURM_JOB_ID=12"}, // the last one wins
		"12_3": {"SLURM_JOB_ID=15", "SLURM_ARRAY_JOB_ID=12", "SLURM_ARRAY_TASK_ID=3"},
	} {
		if got := JobID(LookupIn(environ)); got != want {
			t.Errorf("%v: job %q, want %q", environ, got, want)
		}
	}
}

func TestDeadline(t *testing.T) {
	noon := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"": {}, "1769860800": noon, "2026-01-31T12:00:00Z": noon, "2026-01-31T13:00:00+01:00": noon,
	} {
		got, err := Deadline(LookupIn([]string{"DDPBATCH_DEADLINE=" + text}))
		if err != nil || !got.Equal(want) {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"noon", "0", "-1", "1.5", "2026-01-31", "99999999999999999999", "9223372036854775807", "1769860800000", "253402300800",
		"1969-01-31T12:00:00Z",
	} {
		if _, err := Deadline(LookupIn([]string{"DDPBATCH_DEADLINE=" + text})); !errors.As(err, new(*usage.Error)) {
			t.Errorf("%q: %v, want a fault of usage", text, err)
		}
	}
}

// If no other source gives a deadline, it is the end of the allocation that Slurm gives. What Slurm gives for a job without a limit is not
// a deadline.
func TestDeadlineMayComeFromSlurm(t *testing.T) {
	for _, test := range []struct {
		own, slurm string
		want       time.Time
	}{
		{"", "1769860800", time.Unix(1769860800, 0)},
		{"1769860000", "1769860800", time.Unix(1769860000, 0)},
		{"", "0", time.Time{}},
		{"", "Unknown", time.Time{}},
		{"", "18446744073709551614", time.Time{}},
	} {
		got, err := Deadline(LookupIn([]string{"DDPBATCH_DEADLINE=" + test.own, "SLURM_JOB_END_TIME=" + test.slurm}))
		if err != nil || !got.Equal(test.want) {
			t.Errorf("%q and %q: %v, %v, want %v", test.own, test.slurm, got, err, test.want)
		}
	}
}
