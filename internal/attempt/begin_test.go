package attempt

import (
	"slices"
	"testing"

	"ddpbatch/internal/testkit/fakeslurm"
)

// The first element of a lost array job that begins records that job. An element of an older job that begins again changes nothing.
func TestBeginOfAnElementRecordsItsJob(t *testing.T) {
	a := fakeslurm.NewArray(t, "0-2")
	a.Submitted("12")
	fakeslurm.CutShort(t, a.Run)
	p := &pretendSlurm{a.Slurm, t}
	for _, step := range []struct{ array, index, recorded string }{
		{"12", "0", "12"}, {"13", "1", "13"}, {"13", "2", "13"}, {"12", "0", "13"},
	} {
		e, _, _ := p.env(0, 0)
		e.Environ = append(e.Environ, "SLURM_ARRAY_JOB_ID="+step.array, "SLURM_ARRAY_TASK_ID="+step.index)
		a.Must(e.begin(t, a.Run))
		if id, err := a.Run.JobID(); id != step.recorded || err != nil {
			t.Errorf("%s_%s has begun, and recorded is %s, %v; want %s", step.array, step.index, id, err, step.recorded)
		}
	}
	if got, err := a.Run.Submissions(); err != nil || !slices.Equal(got.Jobs, []string{"12", "13"}) {
		t.Errorf("submissions %q, %v", got.Jobs, err)
	}
}
