package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"ddpbatch/internal/placement"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/runview"
	"ddpbatch/internal/testkit"
	"ddpbatch/internal/testkit/torch"
	"ddpbatch/mpi/launch"
	"ddpbatch/slurm"
)

// Agents use PMI if each task is an agent and agent 0 is task 0.
func TestPMIIsUsedWhereEachTaskIsAnAgent(t *testing.T) {
	for _, row := range []struct {
		name       string
		rank, size int // in PMI-2
		alloc      *slurm.Allocation
		index      int
		count      int
		want       bool
	}{
		{"agents", 1, 3, &slurm.Allocation{ProcID: 1}, 1, 3, true},
		{"agent 0", 0, 3, &slurm.Allocation{}, 0, 3, true},
		{"not all must come", 1, 3, &slurm.Allocation{ProcID: 1}, 1, -3, false},
		{"alone", 0, 1, &slurm.Allocation{}, 0, 1, false},
		{"by hand", 0, 2, nil, 0, 2, false},
		{"of another step", 1, 2, &slurm.Allocation{ProcID: 1}, 1, 3, false},
		{"of another task", 0, 3, &slurm.Allocation{ProcID: 1}, 1, 3, false},
		{"task 0 is not agent 0", 0, 3, &slurm.Allocation{}, 1, 3, false},
	} {
		client, err := openExchange(&env{Environ: pmiEnviron(t, row.rank, row.size)})
		if err != nil {
			t.Fatal(err)
		}
		cfg := launch.AgentConfig{World: launch.World{Index: row.index, Count: row.count}}
		if cfg.Count < 0 {
			cfg.Count, cfg.MinCount = -row.count, 1
		}
		placement.Exchange(client, row.alloc, &cfg)
		if got := cfg.Exchange != nil; got != row.want {
			t.Errorf("%s: %t, want %t", row.name, got, row.want)
		}
		client.Close()
	}
	if client, err := openExchange(&env{}); client != nil || err != nil {
		t.Errorf("srun without PMI-2: %v, %v", client, err)
	}
	if client, err := openExchange(&env{Environ: []string{"PMI_FD=3", "PMI_RANK=x", "PMI_SIZE=2"}}); err == nil {
		t.Errorf("nonsense: %v", client)
	}
}

// pmiEnviron returns the variables that Slurm sets for one end of a socket pair. The other end is closed.
func pmiEnviron(t *testing.T, rank, size int) []string {
	t.Helper()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	syscall.Close(pair[1])
	return []string{"PMI_FD=" + strconv.Itoa(pair[0]), "PMI_RANK=" + strconv.Itoa(rank), "PMI_SIZE=" + strconv.Itoa(size), "PMI_JOBID=7.0"}
}

// Workers do not inherit the PMI connection that their agent has taken over. PMIx is a different interface, whose variables they keep.
func TestWorkersGetNoPMI(t *testing.T) {
	got := withoutPMI([]string{"PMI_FD=5", "PMI_RANK=1", "PATH=/bin", "PMIX_RANK=1", "PMI_SIZE=3"})
	if want := []string{"PATH=/bin", "PMIX_RANK=1"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestAgentsStartedByHandFormAGroup starts agents as users do in several terminals: with explicit numbers, or numbered in order of arrival.
func TestAgentsStartedByHandFormAGroup(t *testing.T) {
	t.Setenv("HOME", t.TempDir()) // for the key file
	for _, test := range []struct {
		flags string // of all agents; PORT is replaced by a free one
		each  []string
		want  string // printed by the ranks: RANK/WORLD_SIZE GROUP_RANK
	}{
		{"--nnodes 2 --master-addr 127.0.0.1 --master-port PORT", []string{"--node-rank 0 --nproc-per-node 2", "--node_rank=1"},
			"0/3 0, 1/3 0, 2/3 1"},
		{"--nnodes 2 --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:PORT", []string{"", ""}, "0/2 0, 1/2 1"},
		{"--nnodes 2:2 --rdzv-backend c10d --rdzv-endpoint localhost:PORT", []string{"--node-rank 1 --nproc-per-node 2", "--node-rank 0"},
			"0/3 0, 1/3 1, 2/3 1"},
		{"--nnodes 2 --rdzv-backend c10d --rdzv-endpoint localhost:PORT --rdzv-id job",
			[]string{"--rdzv-conf is_host=1 --nproc-per-node 2", "--rdzv-conf is_host=0"}, "0/3 0, 1/3 0, 2/3 1"},
		{"--nnodes 1:3 --rdzv-backend c10d --rdzv-endpoint localhost:PORT --rdzv-conf last_call_timeout=0.2", []string{""}, "0/1 0"},
	} {
		flags := strings.ReplaceAll(test.flags, "PORT", fmt.Sprint(handPort(t)))
		ended := make(chan string, len(test.each))
		for _, own := range test.each {
			go func() { ended <- runByHand(flags + " " + own) }()
		}
		var lines []string
		for range test.each {
			out := <-ended
			lines = append(lines, regexp.MustCompile(`(?m)^\d+/\d+ \d+$`).FindAllString(out, -1)...)
			if strings.Contains(out, "exit status") {
				t.Errorf("%s: %s", flags, out)
			}
		}
		slices.Sort(lines)
		if got := strings.Join(lines, ", "); got != test.want {
			t.Errorf("%s: %s, want %s", flags, got, test.want)
		}
	}
}

// runByHand runs an agent with these flags, and returns what it prints and how it fails.
func runByHand(flags string) string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	words := append([]string{"run", "--prefix="}, strings.Fields(flags)...)
	cmd := exec.CommandContext(ctx, "ddpbatch", append(words, "--", "sh", "-c", "echo $RANK/$WORLD_SIZE $GROUP_RANK")...)
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Sprintf("%s\n%v", out, err)
	}
	return string(out)
}

func TestAgentLimitsItsGarbage(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	for gogc, want := range map[string]int{"": agentGC, "200": 100} { // if GOGC is set, Go applies it itself
		debug.SetGCPercent(100)
		limitGarbage(&env{Environ: []string{"GOGC=" + gogc}})
		if got := debug.SetGCPercent(100); got != want {
			t.Errorf("GOGC=%q: %d, want %d", gogc, got, want)
		}
	}
}

const (
	// oomLimit leaves room for the agents of the race detector's build.
	oomLimit = 512 << 20

	// eater is the command of two ranks. Rank 1 takes more and more memory, and has the highest score for the kernel's OOM killer (proc(5),
	// oom_score_adj).
	eater = `[ "$RANK" = 1 ] || exec sleep 1000
echo 1000 >/proc/self/oom_score_adj
exec tail /dev/zero`

	oomReport = "out of memory: the kernel killed a process because the job's memory limit of 512 MiB (the most that was " +
		"used: 512 MiB) was reached"
)

// TestKernelKillEndsTheRunAsOOM runs a rank in a cgroup with little memory, where the kernel kills it. The screen, the verdicts and status
// all report the cause oom.
func TestKernelKillEndsTheRunAsOOM(t *testing.T) {
	if out, err := exec.Command("tail", "--version").CombinedOutput(); err != nil || !strings.Contains(string(out), "GNU") {
		t.Skip("needs GNU's tail, which keeps a line in memory however long it is")
	}
	group := testkit.MemoryGroup(t, oomLimit)
	dir := t.TempDir()
	inGroup := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("sh", append([]string{"-c", `echo $$ >"$0"/cgroup.procs && exec ddpbatch "$@"`, group}, args...)...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != 137 {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
		return strings.Join(strings.Fields(string(out)), " ") // the report is wrapped into lines
	}
	holds := func(text string, words ...string) {
		t.Helper()
		for _, w := range words {
			if !strings.Contains(text, w) {
				t.Errorf("%q is not said:\n%s", w, text)
			}
		}
	}
	const blamed = "was killed by SIGKILL and was the first to fail"
	holds(inGroup("run", "--standalone", "--nproc-per-node", "2", "--no-python", "sh", "-c", eater), "rank 1 on ", blamed,
		oomReport, "1 rank followed: 0")

	// one requeue, and no more: memory runs out on these nodes again
	said := inGroup("simulate", "--nodes", "1", "--nproc-per-node", "2", "--set", `requeue.on=["oom"]`, "--", "sh", "-c", eater)
	holds(said, "rank 1 on node1 "+blamed, oomReport, "memory ran out (node1): requeue 1 of 1", "requeue.max.oom = 1 is used up")
	run := runMade(t, dir)
	for attempt := 1; attempt <= 2; attempt++ {
		v, err := run.Verdict(attempt)
		if err != nil || v.Cause != "oom" || !v.OOM || v.FirstRank != 1 || v.Exit != 137 || v.Signal != 9 || len(v.Nodes) > 0 {
			t.Errorf("verdict of attempt %d: %+v, %v", attempt, v, err)
		}
		holds(strings.Join(strings.Fields(v.Report), " "), oomReport)
	}
	ledger, err := run.Ledger()
	if err != nil {
		t.Fatal(err)
	}
	var events []string
	for _, e := range ledger {
		if e.Event != rundir.EventBegin {
			events = append(events, fmt.Sprint(e.Event, " ", e.Attempt, " ", e.Cause))
		}
	}
	if got, want := strings.Join(events, ", "), "end 1 oom, requeue 1 oom, end 2 oom, give-up 2 oom"; got != want {
		t.Errorf("the ledger says: %s; want: %s", got, want)
	}
	status, out := command(dir, "status", "--json", run.Path())
	if err := status.Run(); err != nil {
		t.Fatalf("status: %v\n%s", err, out)
	}
	if row := decode[[]runview.RunStatus](t, out.Bytes())[0]; row.State != "OUT_OF_MEMORY" || row.Cause != "oom" || row.Requeues != 1 {
		t.Errorf("status --json: %+v", row)
	}
	noSurvivors(t, dir)
}

// If rank 0 serves MASTER_PORT itself, the error names the flag that leaves the port to it.
func TestRunMasterPortIsServed(t *testing.T) {
	t.Parallel()
	python := python(t)
	run := func(flags ...string) (string, error) {
		const script = `import os, socket; socket.create_server((os.environ["MASTER_ADDR"], ` +
			`int(os.environ["MASTER_PORT"]))); print("serves")`
		args := append(append([]string{"run", "--standalone"}, flags...), "--", python, "-c", script)
		out, err := exec.Command("ddpbatch", args...).CombinedOutput()
		return string(out), err
	}
	const says = "pass --torch-store=false (launch.torch_store = false in a job)"
	if out, err := run(); err == nil || !strings.Contains(strings.Join(strings.Fields(out), " "), says) {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := run("--torch-store=false"); err != nil || !strings.Contains(out, "serves") {
		t.Errorf("%v: %s", err, out)
	}
}

// printEnvironment writes a worker's environment to a file named after its rank.
const printEnvironment = `
import json, os, sys
with open(os.path.join(sys.argv[1], os.environ["RANK"] + ".json"), "w") as f:
    json.dump(dict(os.environ), f)
`

// TestRunSetsTorchrunsVariables starts the same script under both launchers. ddpbatch sets each variable that torchrun sets, and to the
// same value, except for ports and folders of the run and where docs/cli/run.md describes a difference.
func TestRunSetsTorchrunsVariables(t *testing.T) {
	torch.Run(t, "import torch.distributed.run") // skips if it is not installed
	script := filepath.Join(t.TempDir(), "tell.py")
	if err := os.WriteFile(script, []byte(printEnvironment), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := []string{"--nproc_per_node=2", "--role=actor", "--max_restarts=3", "--rdzv_id=77", "--master_port=" + fmt.Sprint(handPort(t)),
		"--log_dir=" + t.TempDir(),
		"--redirects=9:1", "--tee=9:1"} // torchrun 1.13 rejects its own defaults under Python 3.11
	real := environments(t, script, append([]string{"/usr/bin/python3", "-m", "torch.distributed.run"}, flags...))
	own := environments(t, script, append([]string{"ddpbatch", "run"}, flags...))
	differs := map[string]string{
		"OMP_NUM_THREADS":              "a share of the cores, where torchrun has 1",
		"TORCHELASTIC_USE_AGENT_STORE": "False, as --master_port is given",
		"TORCHELASTIC_ERROR_FILE":      "a folder of the run's own",
		"NCCL_ASYNC_ERROR_HANDLING":    "TORCH_NCCL_ASYNC_ERROR_HANDLING in versions from 2.2 on",
	}
	for rank := range 2 {
		compared := 0
		for name, want := range real[rank] {
			if _, inherited := os.LookupEnv(name); inherited || differs[name] != "" || name == "LC_CTYPE" {
				continue
			}
			compared++
			if got, ok := own[rank][name]; !ok || got != want {
				t.Errorf("rank %d: %s is %q (set: %t), under torchrun %q", rank, name, got, ok, want)
			}
		}
		if compared < 14 {
			t.Errorf("rank %d: only %d variables were compared", rank, compared)
		}
		if own[rank]["TORCHELASTIC_USE_AGENT_STORE"] != "False" || own[rank]["TORCH_NCCL_ASYNC_ERROR_HANDLING"] != "1" {
			t.Errorf("rank %d: TORCHELASTIC_USE_AGENT_STORE is %q", rank, own[rank]["TORCHELASTIC_USE_AGENT_STORE"])
		}
	}
}

// environments runs the script by a launcher, and returns each rank's environment.
func environments(t *testing.T, script string, launcher []string) (all []map[string]string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	dir := t.TempDir()
	words := append(slices.Clone(launcher), script, dir)
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "OMP_NUM_THREADS=") })
	cmd.WaitDelay = 10 * time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%q: %v\n%s", words, err, out)
	}
	for rank := range 2 {
		data, err := os.ReadFile(filepath.Join(dir, fmt.Sprint(rank)+".json"))
		if err != nil {
			t.Fatalf("%q: %v", words, err)
		}
		var one map[string]string
		if err := json.Unmarshal(data, &one); err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
	return all
}
