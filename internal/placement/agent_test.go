package placement

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/torchrun"
	"ddpbatch/internal/usage"
	"ddpbatch/mpi/launch"
	"ddpbatch/slurm"
	"ddpbatch/slurm/pmi2"
)

// shell returns the environment of a terminal outside any job. It has a secret, so that no key file is needed.
func shell(t *testing.T) map[string]string {
	t.Helper()
	secret := auth.NewSecret()
	return map[string]string{"DDPBATCH_SECRET": secret.Hex(), "PATH": "/bin"}
}

// agents returns the environment of task 1 in a step with one task on each of the nodes n1 to n3.
func agents(t *testing.T) map[string]string {
	return with(shell(t), map[string]string{
		"SLURM_CLUSTER_NAME": "lab", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "n[1-3]",
		"SLURM_STEP_TASKS_PER_NODE": "1(x3)", "SLURM_STEP_NUM_TASKS": "3", "SLURM_NTASKS": "3", "SLURM_PROCID": "1",
		"SLURM_NODEID": "1", "SLURM_LOCALID": "0",
		"SLURMD_NODENAME": "n2", "SLURM_CPUS_PER_TASK": "8",
	})
}

// tasks returns the environment of task 3 in a step with two tasks on each of the nodes n1 and n2.
func tasks(t *testing.T) map[string]string {
	return with(agents(t), map[string]string{
		"SLURM_STEP_NODELIST": "n[1-2]", "SLURM_STEP_TASKS_PER_NODE": "2(x2)", "SLURM_STEP_NUM_TASKS": "4", "SLURM_NTASKS": "4",
		"SLURM_PROCID": "3", "SLURM_LOCALID": "1",
	})
}

// single returns the environment of the only task of a step, on node n2.
func single(t *testing.T) map[string]string {
	return with(agents(t), map[string]string{
		"SLURM_STEP_NODELIST": "n2", "SLURM_STEP_TASKS_PER_NODE": "1", "SLURM_STEP_NUM_TASKS": "1", "SLURM_NTASKS": "1",
		"SLURM_PROCID": "0", "SLURM_NODEID": "0",
	})
}

// misspelt returns the environment of a terminal in which the name of one of torchrun's variables is misspelled, beside one that is right.
func misspelt(t *testing.T) map[string]string {
	return with(shell(t), map[string]string{"PET_NPROC_PRE_NODE": "3", "PET_NODE_RANK": "0", "PETSC_DIR": "/opt"})
}

func with(base, changes map[string]string) map[string]string {
	all := maps.Clone(base)
	maps.Copy(all, changes)
	return all
}

// resolved returns the agent's configuration that results from a command line in an environment, and what is printed.
func resolved(t *testing.T, environ map[string]string, line string) (launch.AgentConfig, string, error) {
	t.Helper()
	lookup := func(name string) (string, bool) { value, ok := environ[name]; return value, ok }
	o, _, err := torchrun.Parse(strings.Fields(line), lookup)
	if err != nil {
		return launch.AgentConfig{}, "", err
	}
	var said strings.Builder
	job := launch.DefaultConfig()
	agent := Agent{
		Options: &o, PerNode: o.NprocOf(job.NprocPerNode), Job: job, JobID: environ["SLURM_JOB_ID"], Lookup: lookup,
		Note: func(format string, args ...any) { fmt.Fprintf(&said, format+"\n", args...) },
	}
	for _, name := range slices.Sorted(maps.Keys(environ)) {
		agent.Environ = append(agent.Environ, name+"="+environ[name])
	}
	if agent.Program, err = o.Argv(""); err != nil {
		return launch.AgentConfig{}, "", err
	}
	cfg := launch.AgentConfig{
		World: launch.World{Host: "here"}, Devices: launch.Devices{GPUs: job.GPUs}, Limits: launch.Limits{Grace: job.Grace},
	}
	agent.Configure(&cfg)
	_, err = agent.Resolve(context.Background(), &cfg)
	return cfg, said.String(), err
}

// An agent gets its place from torchrun's flags alone, from Slurm alone, or from both if they agree.
func TestRunPlacesAnAgentByFlagsAndSlurm(t *testing.T) {
	inStep := "1/3 nproc 1 of 3, lab/7.0.0 at n1:0"
	for _, test := range []struct {
		environ func(*testing.T) map[string]string
		line    string
		want    string
		note    string // "": no note
	}{
		{shell, "x", "0/1 nproc 1 of 1, none at :0", ""},
		{shell, "--nproc-per-node 3 --rdzv-id 8 x", "0/1 nproc 3 of 1, 8 at :0", ""},
		{shell, "--master-port 29511 --master-addr 10.1.1.1 x", "0/1 nproc 1 of 1, none at 10.1.1.1:29511", ""},
		{shell, "--rdzv-endpoint n9:29511 x", "0/1 nproc 1 of 1, none at n9:29511", ""}, // static
		{shell, "--rdzv-backend c10d --rdzv-endpoint localhost:0 x", "0/1 nproc 1 of 1, none at :0", ""},
		{shell, "--standalone --node-rank 3 --master-addr n9 --master-port 3 x", "0/1 nproc 1 of 1, * at :0",
			"not needed: --node-rank, --master-addr, --master-port: there is one node, and MASTER_PORT is a free port"},
		{shell, "--standalone --rdzv-endpoint n9:3 --local-addr n1 x", "0/1 nproc 1 of 1, * at :0",
			"not needed: --rdzv-endpoint, --local-addr: there is one node\n"},
		{shell, "--rdzv-backend c10d --rdzv-endpoint n1:7 --node-rank 0 --master-addr n9 --master-port 3 --interface ib0 x",
			"0/1 nproc 1 of 1, none at :0",
			"not needed: --rdzv-endpoint, --master-addr, --master-port, --interface: there is one node, and MASTER_PORT is a free port"},
		{shell, "--nnodes 1 --rdzv-conf is_host=0,join_timeout=3 x", "0/1 nproc 1 of 1, none at :0",
			"--rdzv-conf: is_host: nothing here depends on it"},
		{shell, "--nnodes 2 --node-rank 1 --master-addr [::1] --master-port 300 x",
			"1/2 nproc 1 of 2, static/::1:300 at ::1:300 meets 301-308", ""},
		{shell, "--nnodes 2:4 --node-rank 3 --rdzv-endpoint n1:300 --rdzv-id job x", "3/4 nproc 1 of 2, job at n1:300 meets 301-308", ""},
		{shell, "--nnodes 2:4 --rdzv-backend c10d --rdzv-endpoint n1 --master-addr n3 x",
			"-1/4 nproc 1 of 2, c10d/n1:29400 at :0 endpoint n1:29400", "not needed: --master-addr: nodes meet at --rdzv-endpoint"},
		{shell, "--nnodes 2 --rdzv-backend c10d --rdzv-endpoint n1:7 --rdzv-conf is_host=1 x",
			"0/2 nproc 1 of 2, c10d/n1:7 at n1:0 meets 7-7", ""},
		{shell, "--nnodes 2 --rdzv-backend c10d --rdzv-endpoint n1:7 --rdzv-conf is_host=0 x",
			"-1/2 nproc 1 of 2, c10d/n1:7 at :0 endpoint n1:7 dial only", ""},
		{shell, "--nnodes 2 --rdzv-backend c10d --rdzv-endpoint n1:7 --rdzv-id 3 --node-rank 1 x", "1/2 nproc 1 of 2, 3 at n1:0 meets 7-7",
			""},

		{shell, "--nnodes 2 --node-rank 0 --master-addr n1 --rdzv-conf is_host=1 x",
			"0/2 nproc 1 of 2, static/n1:29500 at n1:29500 meets 29501-29508", "--rdzv-conf: is_host: nothing here"},
		// several agents of one machine, as torchrun allows them
		{shell, "--nnodes 2 --node-rank 0 --master-addr localhost x",
			"0/2 nproc 1 of 2, static/localhost:29500 at localhost:29500 meets 29501-29508",
			"--master-addr is localhost: only agents on this machine can connect; for several machines, give the name of the first"},
		// agent 0 prints the note
		{shell, "--nnodes 2 --node-rank 1 --master-addr localhost x",
			"1/2 nproc 1 of 2, static/localhost:29500 at localhost:29500 meets 29501-29508", ""},
		{shell, "--nnodes 2 --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:7 x",
			"-1/2 nproc 1 of 2, c10d/127.0.0.1:7 at :0 endpoint 127.0.0.1:7", "--rdzv-endpoint is 127.0.0.1: only agents on this machine"},

		{shell, "--interface ib0 x", "0/1 nproc 1 of 1, none at :0", "not needed: --interface: there is one node"},
		{misspelt, "x", "0/1 nproc 1 of 1, none at :0", "PET_NPROC_PRE_NODE is not a variable of run: did you mean PET_NPROC_PER_NODE?"},

		{agents, "x", inStep, ""},
		{agents, "--nproc-per-node 4 x", "1/3 nproc 4 of 3, lab/7.0.0 at n1:0", ""},
		// agent 0 prints the note
		{agents, "--nnodes 3 --node-rank 1 --rdzv-id $RANDOM --rdzv-backend c10d --rdzv-endpoint n1:29500 --master-addr 10.3.3.3 x", inStep,
			""},
		{agents, "--nnodes 2:4 --master-port 4000 x", "1/3 nproc 1 of 2, lab/7.0.0 at n1:4000", ""},
		{tasks, "x", "3/4 rank 3 of 4, lab/7.0.0 at n1:0", ""},
		{tasks, "--nnodes 2 --nproc-per-node 2 --node-rank 1 x", "3/4 rank 3 of 4, lab/7.0.0 at n1:0", ""},
		{single, "--nproc-per-node 2 x", "0/1 nproc 2 of 1, lab/7.0.0 at n2:0", ""},
		{single, "--nnodes 1 --node-rank 0 --start-method fork x", "0/1 nproc 1 of 1, lab/7.0.0 at n2:0",
			"not needed: --nnodes, --node-rank: Slurm decides"},
		{single, "--start-method fork x", "0/1 nproc 1 of 1, lab/7.0.0 at n2:0", "--start-method has no effect"},
		{single, "--interface ib0 x", "0/1 nproc 1 of 1, lab/7.0.0 at n2:0", "not needed: --interface: there is one node"},
		{tasks, "--interface ib0 x", "3/4 rank 3 of 4, lab/7.0.0 at n1:0", ""},
		{single, "--rdzv-conf is_host=1 x", "0/1 nproc 1 of 1, lab/7.0.0 at n2:0", "--rdzv-conf: is_host: nothing here"},
		// one srun for each node, as users do who are used to ssh
		{single, "--nnodes 2 --node-rank 1 --master-addr n1 x", "1/2 nproc 1 of 2, static/n1:29500 at n1:29500 meets 29501-29508", ""},
		// ranks that this run does not have: torchrun ignores them, and another node may have them
		{shell, "--nproc-per-node 2 -r 7:1 x", "0/1 nproc 2 of 1, none at :0",
			"-r names local rank 7, but this run has local ranks 0 to 1"},
		{shell, "--nproc-per-node 2 --tee 0:3,2:1 x", "0/1 nproc 2 of 1, none at :0", "--tee names local rank 2"},
		{agents, "--local-ranks-filter 0-1 x", inStep, ""},
		{shell, "--nproc-per-node 2 --local-ranks-filter 0,5 x", "0/1 nproc 2 of 1, none at :0",
			"--local-ranks-filter names local rank 5, but this run has local ranks 0 to 1"},
		{single, "--nproc-per-node 2 --ranks-filter 1 -r 1:3 x", "0/1 nproc 2 of 1, lab/7.0.0 at n2:0", ""},
		{shell, "--nnodes 2 --node-rank 0 --master-addr n1 --ranks-filter 1 x",
			"0/2 nproc 1 of 2, static/n1:29500 at n1:29500 meets 29501-29508", ""},
		{shell, "--nnodes 2 --node-rank 0 --master-addr n1 --ranks-filter 2 x",
			"0/2 nproc 1 of 2, static/n1:29500 at n1:29500 meets 29501-29508", "--ranks-filter names rank 2"},
		{shell, "--nnodes 2 --node-rank 0 --master-addr n1 -t 1:3 x", "0/2 nproc 1 of 2, static/n1:29500 at n1:29500 meets 29501-29508",
			"-t names local rank 1"},
		{single, "--standalone --nproc-per-node 2 x", "0/1 nproc 2 of 1, * at :0", ""},
	} {
		cfg, said, err := resolved(t, test.environ(t), test.line)
		if err != nil {
			t.Errorf("%q: %v", test.line, err)
			continue
		}
		if strings.Contains(test.want, "*") { // a generated id
			again, _, err := resolved(t, test.environ(t), test.line)
			if err != nil || len(cfg.RunID) < 20 || cfg.RunID == again.RunID {
				t.Errorf("%q: run %q, and then %q, %v", test.line, cfg.RunID, again.RunID, err)
			}
			cfg.RunID = "*"
		}
		if got := describe(cfg); got != test.want {
			t.Errorf("%q: %s\nwant %s", test.line, got, test.want)
		}
		if (said == "") != (test.note == "") || !strings.Contains(said, test.note) {
			t.Errorf("%q: said %q, want %q", test.line, said, test.note)
		}
	}
}

// describe describes the place of an agent as INDEX/COUNT nproc N of MINCOUNT, RUNID at MASTER.
func describe(cfg launch.AgentConfig) string {
	text := fmt.Sprintf("%d/%d nproc %d of %d, ", cfg.Index, cfg.Count, cfg.Nproc, cmp.Or(cfg.MinCount, cfg.Count))
	if len(cfg.Local) == 1 {
		text = fmt.Sprintf("%d/%d rank %d of %d, ", cfg.Index, cfg.Count, cfg.Local[0].Rank, cfg.Local[0].WorldSize)
	}
	text += fmt.Sprintf("%s at %s:%d", cfg.RunID, cfg.MasterAddr, cfg.MasterPort)
	if len(cfg.Ports) > 0 && cfg.JobID == "" {
		text += fmt.Sprintf(" meets %d-%d", cfg.Ports[0], cfg.Ports[len(cfg.Ports)-1])
	}
	if cfg.Endpoint != "" {
		text += " endpoint " + cfg.Endpoint
	}
	if cfg.DialOnly {
		text += " dial only"
	}
	return text
}

// Workers get the same run id as from torchrun 1.13.1: "none" if the user gave none, even if the agents use a generated id.
func TestWorkersGetTorchrunsRunID(t *testing.T) {
	for line, want := range map[string]string{
		"x": "none", "--rdzv-id 8 x": "8",
		"--nnodes 2 --node-rank 1 --master-addr n1 x":                       "none",
		"--nnodes 2 --node-rank 1 --master-addr n1 --rdzv-id 8 x":           "8",
		"--nnodes 2 --rdzv-backend c10d --rdzv-endpoint n1:7 x":             "none",
		"--nnodes 2 --rdzv-backend c10d --rdzv-endpoint n1:7 --rdzv-id 8 x": "8",
	} {
		cfg, _, err := resolved(t, shell(t), line)
		if got := cmp.Or(cfg.TorchID, cfg.RunID); err != nil || got != want {
			t.Errorf("%q: %q, %v, want %q", line, got, err, want)
		}
	}
}

// TestFlagsThatContradictSlurmAreRefused: flags about the nodes must agree with Slurm.
func TestFlagsThatContradictSlurmAreRefused(t *testing.T) {
	for _, test := range []struct {
		environ func(*testing.T) map[string]string
		line    string
		want    string
	}{
		{agents, "--nnodes 2 x", "--nnodes is 2, but this step has 3 nodes; leave it out"},
		{agents, "--nnodes 4:8 x", "--nnodes is 4:8, but this step has 3 nodes"},
		{agents, "--node-rank 0 x", "--node-rank is 0, but for Slurm this is node 1 (n2); leave it out (the batch script's shell"},
		{agents, "--master-addr n2 x", "--master-addr is n2, node 1 of the step, but rank 0 runs on n1"},
		{agents, "--rdzv-endpoint n3:29500 x", "--rdzv-endpoint is n3, node 2 of the step"},
		{agents, "--master-addr localhost x",
			"--master-addr is localhost, but this step has 3 nodes: each would look for rank 0 on itself"},
		{agents, "--standalone x", "SLURM_NTASKS is 3: each task would start a world of its own; leave --standalone out"},
		{tasks, "--nproc-per-node 4 x",
			"srun starts one task per rank here (4 tasks, 2 of them on n2), but --nproc-per-node asks for 4 workers in each"},
		{salloced, "--nproc-per-node 2 x",
			"srun starts one task per rank here (5 tasks, 1 of them on n3), but --nproc-per-node asks for 2 workers in each; " +
				"leave it out, or start one task per node: srun -N3 -n3 --ntasks-per-node=1"},
		{tasks, "--nnodes 1 x", "--nnodes is 1, but this step has 2 nodes"},
		{single, "--nnodes 2 x", "--nnodes is 2; add --node-rank and --master-addr, or"},
		{single, "--node-rank 1 x", "--node-rank is 1, but for Slurm this is node 0 (n2)"},
		{shell, "--node-rank 1 x", "--node-rank is 1, but there is only one node"},
		{shell, "--nnodes 2 --node-rank 0 x", "add --node-rank and --master-addr, or"},
		{shell, "--nnodes 2 --node-rank 0 --master-addr n1 --master-port 65530 x", "--master-port is 65530, but must be 1 to 65527"},
		{shell, "--nnodes 2 --node-rank 0 --master-addr n1 --master-port 0 x", "--master-port is 0, but must be 1 to 65527"},
		{shell, "--nnodes 2 --rdzv-backend c10d x", "--rdzv-endpoint is not set"},
		{shell, "--nnodes 2 --rdzv-backend c10d --rdzv-endpoint n1:0 x", "--rdzv-endpoint has port 0"},
		{shell, "--nnodes 2 --node-rank 1 --rdzv-backend c10d --rdzv-endpoint n1:7 --rdzv-conf is_host=1 x",
			"--rdzv-conf has is_host=true: the host is node 0"},
		{shell, "--local-addr no.such.host.invalid x", "--local-addr"},
		{shell, "-m", "-m needs a script"},
		{shell, "--pass-local-rank", "--pass-local-rank needs a script"},
		{shell, "--ranks-filter 99 x", "--ranks-filter names rank 99, but this run has only rank 0"},
		{tasks, "--ranks-filter 4 x", "--ranks-filter names rank 4, but this run has ranks 0 to 3"},
	} {
		cfg, _, err := resolved(t, test.environ(t), test.line)
		if err == nil {
			err = cfg.Reject
		}
		if !errors.As(err, new(*usage.Error)) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: %v; want a usage error: %s", test.line, err, test.want)
		}
	}
	agents := with(agents(t), map[string]string{"PET_NNODES": "2"})
	if _, _, err := resolved(t, agents, "x"); err == nil || !strings.Contains(err.Error(), "PET_NNODES is 2") {
		t.Errorf("a variable that contradicts Slurm: %v", err)
	}
}

// salloced returns the environment of task 0 in a step on three nodes whose number of tasks came from the allocation: salloc -N3 -n5, srun
// --ntasks-per-node=1.
func salloced(t *testing.T) map[string]string {
	return with(agents(t), map[string]string{
		"SLURM_STEP_TASKS_PER_NODE": "2(x2),1", "SLURM_STEP_NUM_TASKS": "5", "SLURM_NTASKS": "5", "SLURM_PROCID": "0", "SLURM_NODEID": "0",
		"SLURMD_NODENAME": "n1",
	})
}

// TestRunRejectsWhatIsWrongOnItsNode: an error that may exist only on this node must reach the other agents, which wait for this one. The
// agent therefore has its place and a reason to reject the run.
func TestRunRejectsWhatIsWrongOnItsNode(t *testing.T) {
	for _, test := range []struct{ line, want string }{
		{"--node-rank 0 x", "--node-rank is 0, but for Slurm this is node 1 (n2)"},
		{"--node-rank 2 x", "--node-rank is 2, but for Slurm this is node 1 (n2)"},
		{"--master-addr n2 x", "--master-addr is n2, node 1 of the step"},
		{"--nproc-per-node gpu x", `one worker per GPU is asked for ("gpu")`},
		{"--local-addr no.such.host.invalid x", "--local-addr: lookup no.such.host.invalid"},
	} {
		environ := with(agents(t), map[string]string{"CUDA_VISIBLE_DEVICES": ""})
		cfg, _, err := resolved(t, environ, test.line)
		if err != nil || !errors.As(cfg.Reject, new(*usage.Error)) || !strings.Contains(cfg.Reject.Error(), test.want) {
			t.Errorf("%q: %v, it rejects as %v; want a usage error: %s", test.line, err, cfg.Reject, test.want)
		}
		if cfg.Index != 1 || cfg.Count != 3 || cfg.Nproc != 1 || cfg.MasterAddr != "n1" || len(cfg.Ports) == 0 || cfg.RunID != "lab/7.0.0" {
			t.Errorf("%q: who hears of it cannot be known: %s", test.line, describe(cfg))
		}
	}
	// a variable may differ between nodes, and so may the arguments of a task
	uneven := with(salloced(t), map[string]string{"PET_NPROC_PER_NODE": "2"})
	if _, _, err := resolved(t, uneven, "x"); err == nil || !strings.Contains(err.Error(), "PET_NPROC_PER_NODE asks for 2") {
		t.Errorf("a variable that contradicts another node's tasks: %v", err)
	}
}

// TestOnlyOneAgentSaysWhatIsNotNeeded: only one agent of a step reports which flags are not needed.
func TestOnlyOneAgentSaysWhatIsNotNeeded(t *testing.T) {
	const line = "--rdzv-id 8 --rdzv-backend c10d --rdzv-endpoint n1:29500 --monitor-interval 3 --rdzv-conf read_timeout=3 x"
	first := with(agents(t), map[string]string{"SLURM_PROCID": "0", "SLURM_NODEID": "0", "SLURMD_NODENAME": "n1"})
	_, said, err := resolved(t, first, line)
	for _, want := range []string{"--monitor-interval has no effect", "--rdzv-conf: read_timeout: nothing here depends",
		"not needed: --rdzv-backend, --rdzv-endpoint, --rdzv-id: Slurm"} {
		if err != nil || !strings.Contains(said, want) {
			t.Errorf("%v: %s; want %s", err, said, want)
		}
	}
	if _, said, err = resolved(t, agents(t), line); err != nil || said != "" {
		t.Errorf("another agent: %v, %s", err, said)
	}
}

// TestFlagsBecomeTheConfig checks the settings that do not depend on the agent's place.
func TestFlagsBecomeTheConfig(t *testing.T) {
	cfg, _, err := resolved(t, agents(t),
		"--nproc-per-node 4 --role r --max-restarts 2 --shutdown-timeout 0 --hang 5m --gpus one --numa-binding node "+
			"--torch-store --rdzv-conf join_timeout=7,last_call_timeout=0 --local-addr 10.0.0.9 x")
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(cfg.Role, cfg.MaxRestarts, cfg.Policy.MaxRestarts, cfg.Grace, cfg.HangAfter, cfg.GPUs, cfg.NUMA, cfg.TorchStore,
		cfg.JoinTimeout, cfg.LastCall, cfg.Interface, cfg.CPUsPerTask, cfg.Host, cfg.JobID)
	// 0 would mean the default for the times, so they are 1ns; the 8 CPUs of the task are for 4 workers
	if want := "r 2 2 1ns 5m0s one node true 7s 1ns 10.0.0.9 2 n2 7"; strings.Join(strings.Fields(got),
		"") != strings.ReplaceAll(want, " ", "") {
		t.Errorf("%s\nwant %s", got, want)
	}
	bare, _, err := resolved(t, shell(t), "x")
	if err != nil || bare.HangAfter != 0 || bare.GPUs != "auto" || bare.Grace != 60*time.Second ||
		bare.JoinTimeout != 0 || bare.LastCall != 0 {
		t.Errorf("nothing said: %+v, %v", bare, err)
	}
	// ddpbatch's own flag wins over torchrun's
	both, _, err := resolved(t, shell(t), "--join-timeout 9 --rdzv-conf join_timeout=7,timeout=8 x")
	if err != nil || both.JoinTimeout != 9*time.Second {
		t.Errorf("%v, %v", both.JoinTimeout, err)
	}
}

// TestRunKnowsTheLayout: in task mode, agent 0 gets the number of tasks on each node, so that it can name those that do not join.
func TestRunKnowsTheLayout(t *testing.T) {
	cfg, _, err := resolved(t, salloced(t), "x")
	if err != nil || fmt.Sprint(cfg.AgentsPerNode) != "map[n1:2 n2:2 n3:1]" {
		t.Errorf("%v, %v", cfg.AgentsPerNode, err)
	}
}

// TestMisplacedRankZeroIsReportedOnce: if rank 0 is on the second node, the two tasks that know it reject the run. With PMI-2, rank 0
// reports it. Without PMI-2, the first task of the first node reports it, because the others look for agent 0 there.
func TestMisplacedRankZeroIsReportedOnce(t *testing.T) {
	second := slurm.Allocation{JobID: "7", StepID: "0", Nodes: []string{"n1", "n2"}, TasksPerNode: []int{2, 1}, Tasks: 3, NodeRank: 1}
	first, other := second, second
	first.NodeRank, first.ProcID = 0, 1
	other.NodeRank, other.ProcID, other.LocalID = 0, 2, 1
	for _, test := range []struct {
		alloc   slurm.Allocation
		pmi     *pmi2.Client
		index   int
		rejects bool
	}{
		{second, nil, 1, true}, {first, nil, 0, true}, {other, nil, 2, false},
		{second, &pmi2.Client{}, 0, true}, {first, &pmi2.Client{}, 1, true}, {other, &pmi2.Client{}, 2, false},
	} {
		cfg := launch.AgentConfig{World: launch.World{Index: test.alloc.ProcID, Count: 3}}
		Misplaced(test.pmi, &test.alloc, &cfg)
		if cfg.Index != test.index || (cfg.Reject != nil) != test.rejects {
			t.Errorf("rank %d on node %d, PMI-2 %t: agent %d, %v", test.alloc.ProcID, test.alloc.NodeRank,
				test.pmi != nil, cfg.Index, cfg.Reject)
		}
	}
}

// TestRunServesTorchToPythonScripts checks which command lines make the agent serve PyTorch's store.
func TestRunServesTorchToPythonScripts(t *testing.T) {
	script := "train.py"
	for line, want := range map[string]bool{
		script:                                                true,
		"-m train":                                            true,
		"--run-path " + script:                                true,
		"-- python3 " + script:                                true,
		"--no-python python3 " + script:                       true,
		"-- ./train":                                          false,
		"--no-python ./train":                                 false,
		"-m torch.distributed.run " + script:                  false,
		"--torch-store -- ./train":                            true,
		"--torch-store=true -- ./train":                       true,
		"--torch-store=false " + script:                       false,
		"--torch_store=false -- python3 x.py":                 false,
		"--master-port 2000 " + script:                        false, // the port may be for a server of the script
		"--torch-store --master-port 2000 " + script:          true,
		"--master-port 0 " + script:                           true, // 0 means a free port
		"--standalone --master-port 2000 " + script:           true, // the port is ignored
		"--nnodes 2 --node-rank 0 --master-addr n1 " + script: true,
		"--nnodes 2 --node-rank 0 --master-addr n1 --master-port 2000 " + script:         false,
		"--nnodes 2 --rdzv-endpoint n1:2000 --node-rank 0 " + script:                     false,
		"--nnodes 2 --rdzv-backend c10d --rdzv-endpoint n1:2000 --node-rank 0 " + script: true,
	} {
		cfg, _, err := resolved(t, shell(t), line)
		if err != nil || cfg.TorchStore != want {
			t.Errorf("%s: %t, %v", line, cfg.TorchStore, err)
		}
	}
	no := false
	job := &Agent{Options: &torchrun.Options{}, Program: []string{"python3", script}}
	if !job.servesTorch(0) {
		t.Error("a job of Python, and no store")
	}
	job.Job.TorchStore = &no
	if job.servesTorch(0) {
		t.Error("a store, against launch.torch_store")
	}
	for _, environ := range []map[string]string{agents(t), tasks(t)} {
		for line, want := range map[string]bool{script: true, "--master-port 2000 " + script: false, "-- ./train": false} {
			cfg, _, err := resolved(t, environ, line)
			if err != nil || cfg.TorchStore != want {
				t.Errorf("in a step, %s: %t, %v", line, cfg.TorchStore, err)
			}
		}
	}
}

// TestRunUsesOtherPorts: if the agents of a step get another --master-port, they also use other ports for their rendezvous.
func TestRunUsesOtherPorts(t *testing.T) {
	bare, _, err := resolved(t, agents(t), "x")
	if err != nil {
		t.Fatal(err)
	}
	first, _, err := resolved(t, agents(t), "--master-port 2000 x")
	if err != nil {
		t.Fatal(err)
	}
	second, _, err := resolved(t, agents(t), "--master-port 2001 x")
	if err != nil || first.Ports[0] == second.Ports[0] || first.Ports[0] == bare.Ports[0] || second.MasterPort != 2001 {
		t.Errorf("agents meet at %v, %v and %v, %v", bare.Ports, first.Ports, second.Ports, err)
	}
}

// TestAgentsTakePortsOfTheJobOrSlurm: the ports of the job are used first. Otherwise Slurm's SrunPortRange is used, if it has enough ports
// for srun as well.
func TestAgentsTakePortsOfTheJobOrSlurm(t *testing.T) {
	for _, test := range []struct{ job, slurm, want string }{
		{"", "", "[]"},
		{"", "60001-63000", "[60001-63000]"},
		{"61000-61100,62000-62100", "60001-63000", "[61000-61100 62000-62100]"},
		{"", "60001-60200", "[]"},
		{"", "60001", "[]"},
		{"", "nonsense", "[]"},
	} {
		environ := with(agents(t), map[string]string{"DDPBATCH_PORTS": test.slurm})
		job := launch.DefaultConfig()
		job.Ports = test.job
		a := Agent{Job: job, Lookup: func(name string) (string, bool) { value, ok := environ[name]; return value, ok }}
		if got := fmt.Sprint(a.portRanges()); got != test.want {
			t.Errorf("job %q, Slurm %q: got %s, want %s", test.job, test.slurm, got, test.want)
		}
	}
	cfg, _, err := resolved(t, with(agents(t), map[string]string{"DDPBATCH_PORTS": "40000-40300"}), "x")
	if err != nil || len(cfg.Ports) != rendezvousPorts || slices.Min(cfg.Ports) < 40000 || slices.Max(cfg.Ports) > 40300 {
		t.Errorf("agents meet at %v, %v", cfg.Ports, err)
	}
}

// TestMistypedVariablesAreNoted: a variable whose name is close to one of torchrun's has no effect, and a note names the variable that is
// probably meant. Other variables that begin with PET may belong to any program.
func TestMistypedVariablesAreNoted(t *testing.T) {
	for name, want := range map[string]string{
		"PET_NPROC":     "PET_NPROC is not a variable of run: did you mean PET_NPROC_PER_NODE?",
		"PET_NPROCS":    "PET_NPROCS is not a variable of run: did you mean PET_NPROC_PER_NODE?",
		"PET_MAX_RESTS": "PET_MAX_RESTS is not a variable of run: did you mean PET_MAX_RESTARTS?",
		"PET_SHOP":      "",
		"PET_HANGS":     "", // --hang has no variable
	} {
		_, said, err := resolved(t, with(shell(t), map[string]string{name: "2"}), "x")
		if err != nil || want != "" && !strings.Contains(said, want) || want == "" && said != "" {
			t.Errorf("%s: %v, said %q, want %q", name, err, said, want)
		}
	}
}
