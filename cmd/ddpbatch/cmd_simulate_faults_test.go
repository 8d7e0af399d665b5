package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/testkit"
	"ddpbatch/slurm/sim"
)

// faultCase is a fault and its expected result.
type faultCase struct {
	fault    string
	exit     int
	attempts int
	cause    string   // of the first attempt
	says     []string // on the screen
	resumed  bool     // from a checkpoint
	fewer    bool     // ranks at the end, so that its bytes differ
	sets     []string
	slurm    bool // the result depends on Slurm, so the test plays each release
	release  sim.Release
}

// TestInjectedFaultsEndInTheSameBytes injects each kind of fault into a run and checks how the run ends. A run that completes ends with the
// bytes of a run without a fault, and none of its processes live on.
func TestInjectedFaultsEndInTheSameBytes(t *testing.T) {
	job := strings.Replace(stoppableJob, "[train]", "[requeue]\non = [\"preempt\", \"timeout\", \"node\", \"crash\"]\n[train]", 1)
	job = strings.Replace(job, "epochs = 30", "epochs = 15", 1) // 480 steps
	straight := t.TempDir()
	if err := os.WriteFile(filepath.Join(straight, "long.toml"), []byte(job), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd, out := command(straight, "simulate", "long.toml")
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := finalState(t, runMade(t, straight))

	for name, tt := range map[string]faultCase{
		"kill": {fault: "kill:rank=3@step=150", attempts: 2, cause: "crash",
			says: []string{"rank 3 on node2 was killed by SIGKILL", "requeued"}, resumed: true},
		"not on": {fault: "kill:rank=3@step=150", exit: 137, attempts: 1, cause: "crash", says: []string{"not requeued"},
			sets: []string{`requeue.on=["node"]`}},
		"stop": {fault: "stop:rank=1,for=300ms@step=150", attempts: 1, cause: "done"},
		"hang": {fault: "stop:rank=3,for=1h@step=150", attempts: 2, cause: "hang",
			says: []string{"rank 3 on node2 was stopped (SIGSTOP) and gave no sign of life", "wait in "}, resumed: true,
			sets: []string{`launch.hang="6s"`, "launch.max_restarts=1"}},
		"slow":    {fault: "slow:rank=1,for=500ms@step=150", attempts: 1, cause: "done"},
		"term":    {fault: "term@step=150", attempts: 2, cause: "preempt", says: []string{"preempted"}, resumed: true, slurm: true},
		"timeout": {fault: "timeout@step=150", attempts: 2, cause: "timeout", says: []string{"time is over"}, resumed: true, slurm: true},
		"warn":    {fault: "warn:all@step=150", attempts: 2, cause: "timeout", says: []string{"warned"}, resumed: true, slurm: true},
		"node": {fault: "node:node2@step=150", attempts: 2, cause: "node",
			says: []string{"node2 is gone", "node3 takes the place of node2"}, resumed: true, slurm: true},
		"node 0": {fault: "node:0@step=150", attempts: 2, cause: "node", says: []string{"node3 takes the place of node1"}, resumed: true,
			slurm: true},
		"elastic": {fault: "node:1@step=150", attempts: 2, cause: "node", resumed: true, fewer: true,
			sets: []string{"launch.min_nodes=1", "launch.max_restarts=1"}, slurm: true},
		"agent":    {fault: "agent:1@step=150", attempts: 2, cause: "node", resumed: true, slurm: true},
		"attempt":  {fault: "kill:rank=0@step=150#attempt=2", attempts: 1, cause: "done", says: []string{notInjected}},
		"at start": {fault: "kill:rank=0@start", attempts: 2, cause: "crash"},
	} {
		for _, release := range sim.Releases {
			tt := tt
			if tt.release = release; !tt.slurm && release != sim.Slurm2205 {
				continue
			}
			t.Run(name+", "+string(release), func(t *testing.T) {
				t.Parallel()
				run, text := injected(t, job, tt)
				if tt.exit == 0 && !tt.fewer {
					sameTensors(t, finalState(t, run), want)
				}
				if tt.resumed && !strings.Contains(text, "going on after step ") {
					t.Errorf("it began anew:\n%s", text)
				}
			})
		}
	}
}

// notInjected is what simulate says of a fault whose moment never came.
const notInjected = "was not injected"

// injected simulates a job with a fault and checks everything except its final state. The job does not wait for a fault at a step: simulate
// looks at the run's progress every 20 ms, and on a busy machine the job may be over by then. In that case injected plays the job again.
func injected(t *testing.T, job string, tt faultCase) (*rundir.Dir, string) {
	t.Helper()
	p := playFault(t, job, tt)
	for try := 1; try < 5 && p.late(t, job, tt); try++ {
		t.Logf("the job was over before simulate saw the step of %s; it is played again (%d of 4)", tt.fault, try)
		p = playFault(t, job, tt)
	}
	run, cmd, out := p.run, p.cmd, p.out
	if code := cmd.ProcessState.ExitCode(); code != tt.exit {
		t.Fatalf("exit code %d, want %d\n%s", code, tt.exit, out)
	}
	if n, err := run.NewestAttempt(); err != nil || n != tt.attempts {
		t.Errorf("%d attempts, %v; want %d\n%s", n, err, tt.attempts, out)
	}
	if v, err := run.Verdict(1); err != nil || v.Cause != tt.cause {
		t.Errorf("the first attempt's cause is %q, %v; want %q\n%s", v.Cause, err, tt.cause, out)
	}
	for _, words := range append(tt.says, "fault "+tt.fault) {
		if !strings.Contains(out.String(), words) {
			t.Errorf("it does not say %q:\n%s", words, out)
		}
	}
	ledger, err := run.Ledger()
	if err != nil {
		t.Fatal(err)
	}
	recorded := false
	for _, e := range ledger {
		recorded = recorded || e.Event == "fault" && strings.HasPrefix(e.Detail, tt.fault)
	}
	if injected := !strings.Contains(out.String(), notInjected); recorded != injected {
		t.Errorf("the ledger has the fault: %v; it was injected: %v", recorded, injected)
	}
	return run, out.String()
}

// playedFault is a simulation that is over.
type playedFault struct {
	run *rundir.Dir
	cmd *exec.Cmd
	out *bytes.Buffer
}

// playFault simulates a job with a fault, and checks that no process of it is left, whether or not the job has to be played again.
func playFault(t *testing.T, job string, tt faultCase) playedFault {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "long.toml"), []byte(job), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"simulate", "long.toml", "--kill-wait", "20s", "--grace-time", "20s", "--fault", tt.fault}
	for _, set := range tt.sets {
		args = append(args, "--set", set)
	}
	if tt.release != "" {
		args = append(args, "--slurm", string(tt.release))
	}
	cmd, out := command(dir, args...)
	temporary := t.TempDir() // other tests have files in the common one
	cmd.Env = append(os.Environ(), "TMPDIR="+temporary)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	watchdog := time.AfterFunc(4*time.Minute, func() { cmd.Process.Kill() })
	defer watchdog.Stop()
	cmd.Wait() // how it ended is in ProcessState
	run := runMade(t, dir)
	if run == nil {
		t.Fatalf("it made no run: %v\n%s", cmd.ProcessState, out)
	}
	eventually(t, testkit.Patience, "no process of the run is left", func() bool { return len(processesOf(run)) == 0 })
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("left behind in TMPDIR: %v, %v", left, err)
	}
	return playedFault{run, cmd, out}
}

// late reports whether the job reached its last step before simulate saw the step of the fault.
func (p playedFault) late(t *testing.T, job string, tt faultCase) bool {
	t.Helper()
	return strings.Contains(tt.fault, "@step=") && !slices.Contains(tt.says, notInjected) && p.cmd.ProcessState.Success() &&
		strings.Contains(p.out.String(), notInjected) && finalState(t, p.run).Step == lastStep(t, job)
}

// lastStep returns the last step of a job made of stoppableJob.
func lastStep(t *testing.T, job string) int64 {
	t.Helper()
	const stepsPerEpoch = 32 // 1000 rows by 4 ranks of 8
	_, rest, _ := strings.Cut(job, "epochs = ")
	number, _, _ := strings.Cut(rest, "\n")
	epochs, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return stepsPerEpoch * epochs
}

// The disk of the checkpoints is full for good. Each attempt fails at its save, until there are no more requeues. Earlier checkpoints
// remain.
func TestFullDiskSparesEarlierSaves(t *testing.T) {
	world(t, false)
	job := strings.Replace(stoppableJob, "[train]", "[requeue]\non = [\"crash\"]\n[train]", 1)
	job = strings.Replace(job, "epochs = 30", "epochs = 3000", 1) // no attempt gets that far, however late simulate injects the fault
	run, text := injected(t, job, faultCase{
		fault: "nospace@step=300", exit: 1, attempts: 4, cause: "crash", says: []string{"no space left on device"},
	})
	if state := finalState(t, run); state.Step < 250 { // simulate may be late to inject the fault
		t.Errorf("the newest checkpoint is of step %d\n%s", state.Step, text)
	}
}

// If a node is cut off, the run continues on other nodes from its newest checkpoint. The zombies on that node live on for a while, but save
// nothing more, and in the end they are gone.
func TestPartitionedZombiesSaveNothing(t *testing.T) {
	world(t, true)
	job := strings.Replace(stoppableJob, "[train]", "[requeue]\non = [\"node\"]\n[train]", 1)
	job = strings.Replace(job, "20s", "2s", 1)
	_, text := injected(t, job, faultCase{
		fault: "partition:node2@step=300", attempts: 2, cause: "node", resumed: true,
		says: []string{"disconnected", "takes the place of node2"},
	})
	if !strings.Contains(text, "going on after step ") {
		t.Errorf("it began anew:\n%s", text)
	}
}

// world skips the test if this machine does not permit namespaces.
func world(t *testing.T, network bool) {
	t.Helper()
	if testing.Short() {
		t.Skip("a partition, and a full disk, take their time")
	}
	w, err := sim.NewNamespaces(t.Context(), t.TempDir(), network)
	if err != nil {
		t.Skipf("this machine cannot: %v", err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}
