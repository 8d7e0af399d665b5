package attempt

import (
	"errors"
	"slices"
	"testing"
	"time"

	"ddpbatch/internal/submission"
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

// TestNodesOfAllComponents checks that Slurm is asked for the nodes of the whole heterogeneous job, and not only for those of its first
// component.
func TestNodesOfAllComponents(t *testing.T) {
	for want, environ := range map[string]map[string]string{
		"n[1-3]": {"SLURM_JOB_NODELIST": "n[1-3]"},
		"n1,n[4-5],n2": {
			"SLURM_JOB_NODELIST": "n1", "SLURM_JOB_NODELIST_HET_GROUP_0": "n1", "SLURM_JOB_NODELIST_HET_GROUP_1": "n[4-5]",
			"SLURM_JOB_NODELIST_HET_GROUP_2": "n2",
		},
	} {
		e := Env{Lookup: func(name string) (string, bool) { value, set := environ[name]; return value, set }}
		if got := e.nodelist(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// The beginning of an attempt records how many nodes the job has, which may be another number than a later resume asks for.
func TestBeginRecordsHowManyNodes(t *testing.T) {
	for name, test := range map[string]struct {
		environ map[string]string
		want    int
	}{
		"a job":           {map[string]string{"SLURM_JOB_NUM_NODES": "3"}, 3},
		"a heterogeneous": {map[string]string{"SLURM_JOB_NUM_NODES": "3", "SLURM_HET_SIZE": "2"}, 5},
		"no variable":     {nil, 5},
	} {
		run := fakeslurm.Run(t, "")
		spec := run.Spec()
		spec.Nodes = 5
		e := Env{Env: submission.Env{Now: time.Now},
			Lookup: func(name string) (string, bool) { value, set := test.environ[name]; return value, set }}
		written := run.WriteSpec(spec)
		_, err := Claim(e, run, "12", Link{})
		if err = errors.Join(written, err); err != nil {
			t.Fatal(err)
		}
		history, err := run.Ledger()
		if err != nil || len(history) != 1 || history[0].NodeCount != test.want {
			t.Errorf("%s: %+v, %v; want %d nodes", name, history, err, test.want)
		}
	}
}

// TestElementOfAPiece: if a sweep is submitted as several arrays, each array has its own offset. A job that belongs to none of them begins
// no element.
func TestElementOfAPiece(t *testing.T) {
	run := fakeslurm.Run(t, "")
	spec := run.Spec()
	spec.ArraySize = 4
	if err := run.WriteSpec(spec); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		offset string
		index  int
		want   int // -1: an error
	}{{"0", 3, 3}, {"8", 1, 9}, {"", 1, -1}, {"6", 1, -1}, {"-4", 1, -1}, {"4", 4, -1}} {
		e := Env{Lookup: func(string) (string, bool) { return c.offset, c.offset != "" }}
		got, err := elementOf(e, run, c.index)
		if c.want < 0 != (err != nil) || err == nil && got != c.want {
			t.Errorf("offset %q, index %d: %d, %v; want %d", c.offset, c.index, got, err, c.want)
		}
	}
}
