package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/exit"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/runview"
)

// longJob takes a few seconds, so that tests can stop it in the middle.
const (
	longEpochs = 150
	longSteps  = longEpochs * 32 // 4096 rows / (32 x 4 ranks)
	longJob    = `schema = 1
name = "long"
[slurm]
nodes = 4
time = "00:05:00"
[launch]
nproc_per_node = 1
[train]
epochs = %d
batch_size = 32
loss = "mse"
model = { kind = "mlp", hidden = [32], activation = "tanh" }
data = { kind = "generated", shuffle = true }
optimizer = { kind = "sgd", lr = 0.01, momentum = 0.9 }
[checkpoint]
every_steps = 100
`
)

// testSlurmResume stops a job in the middle, by a cancel and by killing one of its ranks, and resumes it. It also interrupts a job that
// continues without a user. Each must end with exactly the same bytes as a job that was never stopped.
func testSlurmResume(t *testing.T, c *cluster) {
	c.write("long.toml", fmt.Sprintf(longJob, longEpochs))
	whole := c.submit("long.toml")
	if job := whole.await(); job["JobState"] != "COMPLETED" {
		t.Fatalf("the job that nobody stops: %v", job)
	}
	want := whole.finalState()
	if want.Step != longSteps {
		t.Fatalf("the job that nobody stops ends at step %d, want %d", want.Step, longSteps)
	}
	for _, stop := range []struct {
		name string
		stop func(s *submitted, goOn func())
	}{
		{"cancel", cancelInTheMiddle},
		{"kill", killInTheMiddle},
	} {
		s := c.submit("long.toml")
		stop.stop(s, s.holdAfter(longSteps/2, 1))
		if t.Failed() {
			return
		}
		resumeAndCompare(s, stop.name, want)
	}
	goOnByItself(c, whole)
}

// goOnByItself interrupts a job twice, and no user resumes it: first its time limit comes near, then Slurm requeues it for a user.
func goOnByItself(c *cluster, whole *submitted) {
	t := c.t
	t.Helper()
	s := c.submit("long.toml", "--set", `requeue.lead="60s"`)
	goOn := s.holdAfter(longSteps/4, 1) // until the warning comes: Slurm checks for it only at intervals (sbatch(1), --signal)
	c.ok("scontrol", "update", "jobid="+s.id, "EndTime=now+50")
	eventually(t, commandLimit, "the stop file", func() bool {
		_, err := os.Stat(s.dir.StopPath(1))
		return err == nil
	})
	goOn()
	eventually(t, commandLimit, "the job is requeued", func() bool { return s.event(rundir.EventRequeue).Attempt == 1 })
	c.ok("scontrol", "update", "jobid="+s.id, "TimeLimit=5") // the end that was set also limits the next attempt
	goOn = s.holdAfter(longSteps/2, 2)
	c.ok("scontrol", "requeue", s.id)
	goOn()
	if job := s.await(); job["JobState"] != "COMPLETED" || job["Restarts"] != "2" {
		t.Errorf("Slurm says: %s, %s restarts", job["JobState"], job["Restarts"])
	}
	first, second, last := s.verdict(1), s.verdict(2), s.verdict(3)
	if first.Cause != "timeout" || !first.Saved || !first.Requeue || first.Exit != exit.Requeue || first.Step >= longSteps {
		t.Errorf("verdict of the warned attempt: %+v", first)
	}
	if second.Cause != "preempt" || !second.Saved || second.Step <= longSteps/2 || second.Step >= longSteps {
		t.Errorf("verdict of the attempt that was requeued by hand: %+v", second)
	}
	if last.Cause != "done" || last.Step != longSteps {
		t.Errorf("verdict of the last attempt: %+v", last)
	}
	if row := s.status(); row.Attempt != 3 || row.Requeues != 2 || row.Cause != "done" {
		t.Errorf("status --json: %+v", row)
	}
	c.ok("ddpbatch", "ckpt", "diff", whole.dir.Path(), s.dir.Path()) // the exit code is 0 if both are equal, bit for bit
	if !equalStates(t, s.finalState(), whole.finalState()) {
		t.Error("the job that was interrupted twice ends with other bytes than the one that nobody stopped")
	}
}

// holdAfter stops rank 2 when an attempt is past a step. All others wait for it, so that the job does not end before the test acts on it.
func (s *submitted) holdAfter(step int64, attempt int) (goOn func()) {
	s.c.t.Helper()
	past := func(step int64) {
		s.c.t.Helper()
		eventually(s.c.t, commandLimit, fmt.Sprintf("attempt %d is past step %d", attempt, step), func() bool {
			last, _, err := s.dir.LastMetrics()
			return err == nil && last.Attempt == attempt && last.Step > step
		})
	}
	past(0)
	pid := s.worker(2).pid // the search among all processes may take longer than the rest of the job
	past(step)
	s.c.signalled(syscall.SIGSTOP, pid)
	return func() { _ = syscall.Kill(pid, syscall.SIGCONT) } // an error means that Slurm resumed it in order to end it
}

func cancelInTheMiddle(s *submitted, goOn func()) {
	t := s.c.t
	t.Helper()
	out := s.c.ok("ddpbatch", "cancel", s.id).stdout
	goOn()
	if !strings.Contains(out, "ddpbatch resume ") {
		t.Errorf("cancel does not tell how to go on:\n%s", out)
	}
	if job := s.await(); job["JobState"] != "CANCELLED" {
		t.Errorf("after cancel Slurm says: %v", job)
	}
	if row := s.status(); row.State != "CANCELLED" || *row.Step >= longSteps {
		t.Errorf("status --json after cancel: %+v", row)
	}
	if events := s.events(); !slices.Contains(events, "cancel") {
		t.Errorf("ledger after cancel: %q", events)
	}
	s.gone()
}

// killInTheMiddle kills the rank on n3, as the kernel does when memory runs out.
func killInTheMiddle(s *submitted, _ func()) {
	t := s.c.t
	t.Helper()
	found := s.c.onNode("n3", "pgrep", "-f", "--", s.dir.Binary()+" train")
	pids := strings.Fields(found.stdout)
	if len(pids) != 1 {
		t.Fatalf("workers on n3: %v", found)
	}
	if out := s.c.onNode("n3", "kill", "-KILL", pids[0]); out.code != 0 {
		t.Fatalf("kill: %v", out)
	}
	s.gone()
	if job := s.await(); job["JobState"] != "FAILED" || job["ExitCode"] != "137:0" {
		t.Errorf("after the kill Slurm says: %s, exit code %s", job["JobState"], job["ExitCode"])
	}
	// n3 is the third of four nodes with a rank each
	if v := s.verdict(1); v.Cause != "crash" || v.Signal != 9 || v.Exit != 137 || v.FirstRank != 2 || v.Host != "n3" {
		t.Errorf("verdict after the kill: %+v", v)
	}
	if row := s.status(); row.State != "FAILED" || row.Exit == nil || *row.Exit != 137 || !strings.Contains(row.Message, "n3") {
		t.Errorf("status --json after the kill: %+v", row)
	}
}

// resumeAndCompare resumes a job that was stopped in the middle, and compares its final state.
func resumeAndCompare(s *submitted, name string, want *checkpoint.State) {
	t := s.c.t
	t.Helper()
	_, steps := s.checkpoints()
	newest := steps[len(steps)-1]
	out := s.c.ok("ddpbatch", "resume", s.dir.Path(), "--follow")
	if strings.Contains(out.stdout, "| epoch 0 |") {
		t.Errorf("%s: resume begins with epoch 0:\n%s", name, out.stdout)
	}
	if v := s.verdict(2); v.Cause != "done" || v.Exit != 0 || v.Step != longSteps {
		t.Errorf("%s: verdict of attempt 2: %+v", name, v)
	}
	lines := s.metrics()
	first := slices.IndexFunc(lines, func(m metric) bool { return m.Attempt == 2 })
	// a line is written every 10 steps
	if first < 0 || lines[first].Step <= newest || lines[first].Step > newest+10 {
		t.Errorf("%s: attempt 2 does not go on from step %d, the newest checkpoint", name, newest)
	}
	if newest < longSteps/3 {
		t.Errorf("%s: the newest checkpoint is of step %d, far from where the job was stopped", name, newest)
	}
	if !equalStates(t, s.finalState(), want) {
		t.Errorf("%s: the resumed job ends with other bytes than the one that nobody stopped", name)
	}
}

// finalState returns the contents of the newest checkpoint.
func (s *submitted) finalState() *checkpoint.State {
	s.c.t.Helper()
	dir, steps := s.checkpoints()
	state, err := dir.Load(s.c.t.Context(), steps[len(steps)-1])
	if err != nil {
		s.c.t.Fatal(err)
	}
	return state
}

// equalStates compares two states bit by bit: parameters, momentum and the values beside them.
func equalStates(t *testing.T, got, want *checkpoint.State) bool {
	t.Helper()
	equal := got.Step == want.Step && got.World == want.World && len(got.Tensors) == len(want.Tensors) &&
		len(got.Values) == len(want.Values)
	if !equal {
		t.Errorf("step %d, %d ranks, %d tensors, %d values; want step %d, %d ranks, %d tensors, %d values",
			got.Step, got.World, len(got.Tensors), len(got.Values), want.Step, want.World, len(want.Tensors), len(want.Values))
		return false
	}
	momentum := false
	for i, w := range want.Tensors {
		g := got.Tensors[i]
		momentum = momentum || strings.Contains(w.Name, "momentum")
		if g.Name != w.Name || g.DType != w.DType || !slices.Equal(g.Shape, w.Shape) || !bytes.Equal(g.Data, w.Data) {
			t.Errorf("tensor %s differs from %s", g.Name, w.Name)
			equal = false
		}
	}
	for key, w := range want.Values {
		if !bytes.Equal(got.Values[key], w) {
			t.Errorf("value %s is %s, want %s", key, got.Values[key], w)
			equal = false
		}
	}
	if !momentum {
		t.Error("no tensor holds the optimizer's momentum")
	}
	return equal && momentum
}

// submit and resume are killed after sbatch has accepted the job, and before they receive its id. Slurm knows the job's script, by which
// later commands find the job. It is not submitted again, and can be canceled.
func testSlurmSubmitKilled(t *testing.T, c *cluster) {
	sbatch, err := exec.LookPath("sbatch")
	if err != nil {
		t.Fatal(err)
	}
	killer := filepath.Join(c.dir, "killer")
	if err := os.Mkdir(killer, 0o700); err != nil {
		t.Fatal(err)
	}
	c.write("killer/sbatch", "#!/bin/sh\n"+sbatch+` "$@" >/dev/null && kill -KILL "$PPID"`+"\n")
	killed := func(args ...string) {
		t.Helper()
		env := c.env
		c.env = append(slices.Clone(env), "PATH="+killer+":"+os.Getenv("PATH"))
		c.exits(-1, "ddpbatch", args...)
		c.env = env
	}
	c.commandJob("killed", "nodes = 1", "1", "touch", "ran")
	held := []string{"--", "--hold"} // otherwise the job itself records its id when it begins
	killed(append([]string{"submit", "killed.toml"}, held...)...)
	runs, err := rundir.List(filepath.Join(c.dir, "runs"))
	if err != nil || len(runs) != 1 {
		t.Fatalf("runs %v, %v; want one", runs, err)
	}
	path := runs[0].Path()
	for _, by := range []string{"submit", "resume"} {
		jobs := c.jobs()
		if len(jobs) != 1 {
			t.Fatalf("%s: Slurm has the jobs %q; want one", by, jobs)
		}
		id := jobs[0][1]
		row := decode[[]runview.RunStatus](t, []byte(c.ok("ddpbatch", "status", "--json", path).stdout))[0]
		if row.Job != id || row.State != "PENDING" {
			t.Errorf("%s: status --json: %+v; want job %s, PENDING", by, row, id)
		}
		if out := c.exits(exit.Usage, "ddpbatch", "resume", path); !strings.Contains(out.stderr, id) || len(c.jobs()) != 1 {
			t.Errorf("%s: resume beside job %s: %v; jobs %q", by, id, out, c.jobs())
		}
		c.ok("ddpbatch", "cancel", path)
		if job := c.job(id); job["JobState"] != "CANCELLED" {
			t.Errorf("%s: job %s after the cancel: %s", by, id, job["JobState"])
		}
		if by == "submit" {
			killed(append([]string{"resume", path}, held...)...)
		}
	}
	c.ok("ddpbatch", "resume", path, "--wait")
	if _, err := os.Stat(filepath.Join(c.dir, "ran")); err != nil {
		t.Error(err)
	}
}
