package supervise

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/auth"
	"ddpbatch/mpi/launch/device"
	"ddpbatch/mpi/launch/rendezvous"
)

// A worker's environment has every name that docs/cli/run.md lists. Here it is the second worker on the second of two nodes.
func TestWorkerEnvironHasEveryDocumentedName(t *testing.T) {
	secret := auth.NewSecret()
	c := complete(Config{
		Identity:   rendezvous.Identity{Secret: secret, Attempt: 1, RunDir: newRunDir(t)},
		World:      rendezvous.World{Index: 1, Count: 2, Host: "n2", Nproc: 2},
		OneMachine: true,
	})
	c.MasterAddr, c.RunID, c.Restarts, c.MaxRestarts = "n1", "job/7", 2, 3
	c.Deadline = time.Unix(1800000000, 0)
	c.Env = []string{
		"PATH=/bin", "HOME=/home/u", "EMPTY=", "WITH=a=b", "no name", "=odd",
		// An agent must not pass these values on, except DDPBATCH_SECRET_FILE.
		"RANK=9", "MASTER_ADDR=stale", "TORCHELASTIC_USE_AGENT_STORE=True", "DDPBATCH_SECRET=stale", "DDPBATCH_SECRET_FILE=/k",
		"DDPBATCH_STORE=stale", "DDPBATCH_LISTEN=stale", "DDPBATCH_RUN_ID=stale", "DDPBATCH_ATTEMPT=9", "DDPBATCH_STOP_FILE=stale",
	}
	r := &round{
		agent: &Agent{}, rdzv: &met{addr: "10.0.0.2", agent0: "10.0.0.1"},
		layout: &rendezvous.Layout{Round: 4, WorkerPort: 61001, MasterPort: 61002}, cookie: strings.Repeat("c0", 16),
	}
	p := rendezvous.RankNumbers{Rank: 3, LocalRank: 1, WorldSize: 4, LocalWorldSize: 2, NodeRank: 1, Nodes: 2}
	run := c.RunDir.Path()
	want := map[string]string{
		"PATH": "/bin", "HOME": "/home/u", "EMPTY": "", "WITH": "a=b",
		"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "1", "GROUP_WORLD_SIZE": "2",
		"NODE_RANK": "1", "ROLE_NAME": "default", "ROLE_RANK": "3", "ROLE_WORLD_SIZE": "4", "MASTER_ADDR": "n1", "MASTER_PORT": "61002",
		"TORCHELASTIC_RESTART_COUNT": "2", "TORCHELASTIC_MAX_RESTARTS": "3", "TORCHELASTIC_RUN_ID": "job/7",
		"TORCHELASTIC_ERROR_FILE": run + "/attempts/1/logs/n2.3.error.json", "TORCHELASTIC_USE_AGENT_STORE": "False",
		"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1", "OMP_NUM_THREADS": "7", "PYTHONUNBUFFERED": "1",
		"DDPBATCH_RUN_DIR": run, "DDPBATCH_CHECKPOINT_DIR": run + "/checkpoints", "DDPBATCH_METRICS_FILE": run + "/metrics.jsonl",
		"DDPBATCH_STOP_FILE": run + "/attempts/1/stop", "DDPBATCH_ATTEMPT": "1",
		// DDPBATCH_SECRET_FILE is a path that the user's own program may read
		"DDPBATCH_DEADLINE": "1800000000", "DDPBATCH_ROUND": "4", "DDPBATCH_COOKIE": strings.Repeat("c0", 16), "DDPBATCH_SECRET_FILE": "/k",
	}
	devices := device.Share{Threads: 7}
	environ := func(c Config) map[string]string {
		r.cfg = c
		files, err := r.logsOf(p)
		must(t, err)
		return environMap(t, workerEnviron(r, p, devices, files))
	}
	check := func(what string) {
		t.Helper()
		if got := environ(c); !maps.Equal(got, want) {
			t.Errorf("%s: got  %v\nwant %v", what, got, want)
		}
	}
	check("a foreign command")

	c.HangAfter, c.Env = time.Minute, append(c.Env, "X=")
	want["PYTHONFAULTHANDLER"], want["X"] = "1", ""
	check("workers that are watched for hangs")
	c.Env[len(c.Env)-1] = "PYTHONFAULTHANDLER="
	want["PYTHONFAULTHANDLER"] = ""
	delete(want, "X")
	check("the user wants no faulthandler")
	c.HangAfter, c.Env[len(c.Env)-1] = 0, "PYTHONUNBUFFERED="
	delete(want, "PYTHONFAULTHANDLER")
	want["PYTHONUNBUFFERED"] = ""
	check("the user wants buffered output")
	c.Env = c.Env[:len(c.Env)-1]
	delete(want, "PYTHONUNBUFFERED")

	c.Builtin = true
	maps.Copy(want, map[string]string{
		"DDPBATCH_SECRET": c.Secret.Hex(), "DDPBATCH_STORE": "10.0.0.1:61001", "DDPBATCH_LISTEN": "10.0.0.2",
		"DDPBATCH_RUN_ID": "job/7", "DDPBATCH_FLIGHT_FILE": run + "/attempts/1/logs/n2.3.flight.jsonl",
	})
	delete(want, "DDPBATCH_SECRET_FILE")
	check("ddpbatch's own worker")

	devices.Own = true
	want["DDPBATCH_OWN_CORES"] = "1"
	check("a worker with cores of its own")

	// The workers share the cores that srun reports for the agent.
	c.Env = append(c.Env, "SLURM_CPUS_PER_TASK=8", "SLURM_TRES_PER_TASK=cpu=8")
	check("an agent whose job asked for no cores")
	c.CPUsPerTask = 4
	want["SLURM_CPUS_PER_TASK"] = "4"
	check("an agent of two workers with 8 cores")
	c.CPUsPerTask, c.Env = 0, c.Env[:len(c.Env)-2]
	delete(want, "SLURM_CPUS_PER_TASK")

	// The store of a single agent listens only on this machine, whatever the node's name is.
	one := c
	one.Index, one.Count = 0, 1
	m := r.rdzv
	r.rdzv = &met{addr: rendezvous.Loopback}
	if got := environ(one)["DDPBATCH_STORE"]; got != "127.0.0.1:61001" {
		t.Errorf("a single agent's store is at %s", got)
	}
	r.rdzv = m

	// Variables that the user may set keep the user's values.
	c.Env = append(c.Env, "OMP_NUM_THREADS=11", "TORCH_NCCL_ASYNC_ERROR_HANDLING=0")
	maps.Copy(want, map[string]string{"OMP_NUM_THREADS": "11", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"})
	check("what the user chose")

	// A worker that sees only one GPU has another LOCAL_RANK. environMap checks that no name is there twice.
	devices.Env = []string{"CUDA_VISIBLE_DEVICES=5", "LOCAL_RANK=0"}
	c.Env = append(c.Env, "CUDA_VISIBLE_DEVICES=4,5")
	maps.Copy(want, map[string]string{"CUDA_VISIBLE_DEVICES": "5", "LOCAL_RANK": "0"})
	check("a worker with a GPU of its own")
	devices.Env = nil
	want["LOCAL_RANK"] = "1"

	// Without a run directory, no variable points into one.
	c.Builtin, c.RunDir, c.Deadline = false, nil, time.Time{}
	got := environ(c)
	outside := []string{"DDPBATCH_SECRET_FILE", "DDPBATCH_ROUND", "DDPBATCH_COOKIE"}
	for name := range got {
		if strings.HasPrefix(name, "DDPBATCH_") && !slices.Contains(outside, name) || name == "TORCHELASTIC_ERROR_FILE" {
			t.Errorf("without a run directory there is %s=%s", name, got[name])
		}
	}

	rank := environMap(t, c.RankEnviron(p, 61002))
	for _, name := range []string{"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_USE_AGENT_STORE"} {
		if rank[name] != want[name] {
			t.Errorf("RankEnviron has %s=%s, want %s", name, rank[name], want[name])
		}
	}
}

// With several nodes, users' commands get the interface through which the agents met.
func TestForeignCommandsGetTheInterface(t *testing.T) {
	both := "GLOO_SOCKET_IFNAME=ib0 TP_SOCKET_IFNAME=ib0"
	for name, tc := range map[string]struct {
		m     met
		c     Config
		nodes int
		want  string
	}{
		"several interfaces": {met{iface: "ib0"}, Config{}, 2, both},
		"one that is chosen": {met{iface: "ib0", chosen: true}, Config{}, 2, both + " NCCL_SOCKET_IFNAME==ib0"},
		"not known":          {met{chosen: true}, Config{}, 2, ""},
		"one node":           {met{iface: "ib0"}, Config{}, 1, ""},
		"ddpbatch's own":     {met{iface: "ib0"}, Config{Workers: Workers{Builtin: true}}, 2, ""},
		"pretended nodes":    {met{iface: "ib0"}, Config{OneMachine: true}, 2, ""},
	} {
		var words []string
		for _, v := range (&round{rdzv: &tc.m, cfg: tc.c}).socketVariables(rendezvous.RankNumbers{Nodes: tc.nodes}) {
			words = append(words, v.name+"="+v.value)
		}
		if got := strings.Join(words, " "); got != tc.want {
			t.Errorf("%s: told %q, want %q", name, got, tc.want)
		}
	}
}

func environMap(t *testing.T, env []string) map[string]string {
	t.Helper()
	m := map[string]string{}
	for _, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		if _, twice := m[name]; twice {
			t.Errorf("%s is there twice", name)
		}
		m[name] = value
	}
	return m
}
