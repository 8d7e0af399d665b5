package rehearse

import (
	"testing"
	"time"

	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/rundir"
	"ddpbatch/mpi/launch"
)

// TestWarningIsIgnoredOnlyWithTimeToHeed: a command that had time to heed its warning does not get a third and a fourth one. A command that
// had no time, or never got a warning, does.
func TestWarningIsIgnoredOnlyWithTimeToHeed(t *testing.T) {
	command := &jobfile.Job{Launch: launch.Config{Command: []string{"true"}}}
	for name, tt := range map[string]struct {
		attempts, exit int
		deaf           time.Duration
		job            *jobfile.Job
		late, ignored  bool
	}{
		"heeded":                {2, 0, time.Millisecond, command, false, false},
		"ignored":               {1, 0, time.Hour, command, false, true},
		"at the very end":       {1, 0, warningTime - time.Millisecond, command, true, false},
		"just in time":          {1, 0, warningTime, command, false, true},
		"never warned":          {1, 0, 0, command, true, false},
		"the trainer had ended": {1, 0, time.Millisecond, &jobfile.Job{}, true, false},
		"failed":                {1, 7, time.Millisecond, command, false, false},
	} {
		p := Outcome{Attempts: tt.attempts, Verdict: rundir.Verdict{Exit: tt.exit}, AfterWarning: tt.deaf, Job: tt.job}
		if p.late() != tt.late || p.ignored() != tt.ignored {
			t.Errorf("%s: late %v, ignored %v", name, p.late(), p.ignored())
		}
	}
}
