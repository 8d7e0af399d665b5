package attempt

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/testkit/fakeslurm"
	"ddpbatch/slurm"
)

func TestFindDrain(t *testing.T) {
	p, run := newPretendSlurm(t), fakeslurm.Run(t, "")
	e, _, _ := p.env(0, 1)
	for name, nobody := range map[string]bool{
		"outside of a job":        (&script{}).env().FindDrain(run) == nil && (&script{}).env().Spares(run) == nil,
		"without a run directory": e.env().FindDrain(nil) == nil && e.env().Spares(nil) == nil,
	} {
		if !nobody {
			t.Errorf("Slurm is asked %s", name)
		}
	}
	find := e.env().FindDrain(run)
	for out, want := range map[string]map[string]string{
		"n1\x1fmixed\x1fnone\nn2\x1fallocated\x1fnone\n":       {},
		"n1\x1fmixed\x1fnone\nn2\x1fdraining\x1fmaintenance\n": {"n2": "maintenance"},
	} {
		p.Says("sinfo.out", out)
		if got, err := find(t.Context()); err != nil || !maps.Equal(got, want) {
			t.Errorf("%q: %q, %v; want %q", out, got, err, want)
		}
	}
	asked, err := os.ReadFile(filepath.Join(p.Dir, "calls"))
	calls, asSinfo := strings.Count(string(asked), "\n"), strings.Count(string(asked), "sinfo -a -h -N -n n[1-3] ")
	if err != nil || calls != 2 || asSinfo != 2 {
		t.Errorf("two questions were asked by %q, %v", asked, err)
	}
	p.Says("sinfo.err", fakeslurm.Silence)
	if _, err := find(t.Context()); !errors.Is(err, slurm.ErrUnreachable) || errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("no controller answers: %v", err)
	}
	if err := os.Remove(filepath.Join(p.Dir, "sinfo")); err != nil {
		t.Fatal(err)
	}
	e.Environ = slices.DeleteFunc(e.Environ, func(entry string) bool { return strings.HasPrefix(entry, "PATH=") })
	e.Environ = append(e.Environ, "PATH="+p.Dir) // this machine may have its own sinfo
	if _, err := e.env().FindDrain(run)(t.Context()); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("without sinfo: %v", err)
	}
}

// TestSpares: ddpbatch asks Slurm whether the job can run without some nodes, and adds the nodes that the job excludes already.
func TestSpares(t *testing.T) {
	excluding := func(nodes string) string { return fmt.Sprintf(fakeslurm.Facts, "RUNNING Reason=None", 0, nodes) }
	for name, tc := range map[string]struct {
		says   map[string]string
		why    string // the beginning of the reason
		silent bool
		call   string
	}{
		"it can": {map[string]string{"scontrol.out": excluding("n9")}, "", false, "sbatch --test-only --exclude=n[2,9] SCRIPT"},
		"one was drained before": {map[string]string{"scontrol.out": excluding("n[3,9]")}, "", false,
			"sbatch --test-only --exclude=n[2,9] SCRIPT"},
		"it needs them": {map[string]string{"scontrol.out": fakeslurm.RunningFacts,
			"sbatch.err": "Requested node configuration is not available\n"},
			"it cannot start without these nodes: sbatch refused: ", false, "sbatch --test-only --exclude=n2 SCRIPT"},
		"no answer": {map[string]string{"scontrol.out": fakeslurm.RunningFacts, "sbatch.err": fakeslurm.Silence},
			"", true, "sbatch --test-only --exclude=n2 SCRIPT"},
		"Slurm would refuse": {map[string]string{"scontrol.out": strings.ReplaceAll(fakeslurm.RunningFacts, "Requeue=1", "Requeue=0")},
			"Slurm would not requeue it: ", false, ""},
		"no sbatch":           {map[string]string{"scontrol.out": fakeslurm.RunningFacts, "sbatch": ""}, "", true, ""},
		"nor of the job":      {map[string]string{"scontrol.err": fakeslurm.Silence}, "", true, ""},
		"a list that is none": {map[string]string{"scontrol.out": excluding("n[9")}, "", true, ""},
	} {
		p, run := newPretendSlurm(t), fakeslurm.Run(t, "")
		for file, text := range tc.says {
			p.Says(file, text)
		}
		e, _, _ := p.env(0, 1)
		p.Must(run.Append(rundir.Event{Event: rundir.EventEnd, Attempt: 1, Cause: "node", Nodes: []string{"n3"},
			Drain: true, Time: e.Now()}))
		if _, gone := tc.says["sbatch"]; gone {
			p.Must(errors.Join(os.Remove(filepath.Join(p.Dir, "sbatch")), os.Symlink("/bin/cat", filepath.Join(p.Dir, "cat"))))
			e.Environ = append(slices.DeleteFunc(e.Environ, func(entry string) bool { return strings.HasPrefix(entry, "PATH=") }),
				"PATH="+p.Dir)
		}
		why, err := e.env().Spares(run)(t.Context(), []string{"n2"})
		if (err != nil) != tc.silent || !strings.HasPrefix(why, tc.why) || (why == "") != (tc.why == "") {
			t.Errorf("%s: %q, %v", name, why, err)
		}
		if calls := strings.ReplaceAll(strings.Join(p.Calls(), "; "), run.ScriptPath(), "SCRIPT"); calls != tc.call {
			t.Errorf("%s: ran %q, want %q", name, calls, tc.call)
		}
	}
}
