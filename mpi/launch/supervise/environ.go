package supervise

import (
	"cmp"
	"net"
	"slices"
	"strconv"
	"strings"

	"ddpbatch/mpi/launch/device"
	"ddpbatch/mpi/launch/rendezvous"
)

// workerEnviron is the environment of one worker: what it inherits, without the names that only an agent may set, plus torchrun's
// variables and ddpbatch's own.
func workerEnviron(r *round, n rendezvous.RankNumbers, devices device.Share, files workerFiles) []string {
	c := r.cfg
	own := torchVariables(c, n, r.layout.MasterPort)
	own = append(own, ddpbatchVariables(r, devices, files)...)
	own = append(own, slurmVariables(c, n)...)
	own = withDevices(own, devices)
	drop := make(map[string]bool)
	for _, v := range own {
		drop[v.name] = true
	}
	var env []string
	has := make(map[string]bool)
	for _, entry := range c.Env {
		name, _, ok := strings.Cut(entry, "=")
		if ok && name != "" && !drop[name] {
			env = append(env, entry)
			has[name] = true
		}
	}
	for _, v := range own {
		if !v.absent {
			env = append(env, v.name+"="+v.value)
		}
	}
	for _, v := range slices.Concat(defaults(devices), c.pythonVariables(), r.socketVariables(n)) {
		if !has[v.name] {
			env = append(env, v.name+"="+v.value)
		}
	}
	return env
}

// RankEnviron lists torchrun's variables, as NAME=value, for a rank that is not started by an agent.
func (c Config) RankEnviron(n rendezvous.RankNumbers, masterPort int) []string {
	var env []string
	for _, v := range torchVariables(c, n, masterPort) {
		if !v.absent {
			env = append(env, v.name+"="+v.value)
		}
	}
	return env
}

// variable is a variable that workers get only from their agent: with this value, or not at all, whatever the agent itself
// inherited (an agent may be the worker of another one).
type variable struct {
	name, value string
	absent      bool
}

func number(name string, n int) variable { return variable{name: name, value: strconv.Itoa(n)} }

// optional is a variable that is absent if it is empty.
func optional(name, value string) variable {
	return variable{name: name, value: value, absent: value == ""}
}

// torchVariables are those that torchrun gives to a worker
// (torch.distributed.run, "Environment Variables"), and NODE_RANK.
func torchVariables(c Config, n rendezvous.RankNumbers, masterPort int) []variable {
	useAgentStore := "False"
	if c.TorchStore {
		useAgentStore = "True"
	}
	return []variable{
		number("RANK", n.Rank),
		number("LOCAL_RANK", n.LocalRank),
		number("WORLD_SIZE", n.WorldSize),
		number("LOCAL_WORLD_SIZE", n.LocalWorldSize),
		number("GROUP_RANK", n.NodeRank),
		number("GROUP_WORLD_SIZE", n.Nodes),
		number("NODE_RANK", n.NodeRank),
		optional("ROLE_NAME", cmp.Or(c.Role, "default")),
		number("ROLE_RANK", n.Rank),
		number("ROLE_WORLD_SIZE", n.WorldSize),
		optional("MASTER_ADDR", c.MasterAddr),
		number("MASTER_PORT", masterPort),
		number("TORCHELASTIC_RESTART_COUNT", c.Restarts),
		number("TORCHELASTIC_MAX_RESTARTS", c.MaxRestarts),
		optional("TORCHELASTIC_RUN_ID", cmp.Or(c.TorchID, c.RunID)),
		// True makes every rank a client of a store that the launcher
		// serves in torch's own protocol; without one, rank 0 would wait forever.
		optional("TORCHELASTIC_USE_AGENT_STORE", useAgentStore),
	}
}

// ddpbatchVariables are ddpbatch's own variables (docs/cli/run.md), and torchrun's error file, which is beside the logs. Only
// ddpbatch's own workers get the secret, and where to use it.
func ddpbatchVariables(r *round, devices device.Share, files workerFiles) []variable {
	c := r.cfg
	var runDir, checkpoints, metrics, deadline, attempt string
	if c.RunDir != nil {
		runDir, checkpoints, metrics = c.RunDir.Path(), c.RunDir.CheckpointsPath(), c.RunDir.MetricsPath()
	}
	if c.Builtin || c.RunDir != nil {
		attempt = strconv.Itoa(c.Attempt)
	}
	if !c.Deadline.IsZero() {
		deadline = strconv.FormatInt(c.Deadline.Unix(), 10)
	}
	ownCores := ""
	if devices.Own {
		ownCores = "1"
	}
	inner := []variable{
		optional("DDPBATCH_SECRET", c.Secret.Hex()),
		optional("DDPBATCH_STORE", net.JoinHostPort(cmp.Or(r.rdzv.Agent0Addr(), r.rdzv.WorkerAddr()), strconv.Itoa(r.layout.WorkerPort))),
		optional("DDPBATCH_LISTEN", r.rdzv.WorkerAddr()),
		optional("DDPBATCH_RUN_ID", c.RunID),
		optional("DDPBATCH_FLIGHT_FILE", files.flight),
		optional("DDPBATCH_OWN_CORES", ownCores),
	}
	for i := range inner {
		inner[i].absent = inner[i].absent || !c.Builtin
	}
	if c.Builtin { // a builtin worker has the secret itself
		inner = append(inner, variable{name: "DDPBATCH_SECRET_FILE", absent: true})
	}
	return append(inner,
		optional("DDPBATCH_ATTEMPT", attempt),
		optional("DDPBATCH_RUN_DIR", runDir),
		optional("DDPBATCH_CHECKPOINT_DIR", checkpoints),
		optional("DDPBATCH_METRICS_FILE", metrics),
		optional("DDPBATCH_STOP_FILE", c.stopFile()),
		optional("DDPBATCH_DEADLINE", deadline), // seconds since 1970
		optional("DDPBATCH_HEARTBEAT_FILE", r.private.workersPath(files.heartbeat)),
		number("DDPBATCH_ROUND", r.layout.Round),
		optional("DDPBATCH_COOKIE", r.cookie),
		optional("TORCHELASTIC_ERROR_FILE", r.private.workersPath(files.errorFile)),
	)
}

// slurmVariables tell a worker how many cores the job asked for it. srun's values are those of the agent's task, and so of all
// workers of the node together. Data loaders start as many processes as these variables say.
func slurmVariables(c Config, n rendezvous.RankNumbers) []variable {
	if n.LocalWorldSize == 1 || len(c.Local) > 0 {
		return nil
	}
	return []variable{
		{name: "SLURM_CPUS_PER_TASK", value: strconv.Itoa(c.CPUsPerTask), absent: c.CPUsPerTask == 0},
		{name: "SLURM_TRES_PER_TASK", absent: true}, // the same, since Slurm 24.05: "cpu=8"
	}
}

// withDevices replaces the variables for the GPUs that the worker sees, and its LOCAL_RANK among them.
func withDevices(own []variable, devices device.Share) []variable {
	for _, entry := range devices.Env {
		name, value, _ := strings.Cut(entry, "=")
		own = slices.DeleteFunc(own, func(v variable) bool { return v.name == name })
		own = append(own, optional(name, value))
	}
	return own
}

// defaults are set unless the user has set them. torchrun's OMP_NUM_THREADS is 1, which leaves cores idle; without the variable
// every rank would use all cores.
func defaults(devices device.Share) []variable {
	return []variable{
		number("OMP_NUM_THREADS", devices.Threads),
		number("TORCH_NCCL_ASYNC_ERROR_HANDLING", 1),
	}
}

// pythonVariables are for Python programs. Without PYTHONUNBUFFERED (torchrun's python -u), what a worker prints stays in a buffer of
// 8 KiB: nobody sees it while the job runs, and it is lost if a signal kills the worker. If workers are watched for hangs, Python also
// installs its faulthandler, which writes the stacks of all threads when a signal ends a worker, so that they can be asked for their
// stacks (watch.Dumper). The user's own settings, even empty ones, are kept.
func (c Config) pythonVariables() []variable {
	if c.Builtin {
		return nil
	}
	list := []variable{number("PYTHONUNBUFFERED", 1)}
	if c.HangAfter > 0 {
		list = append(list, number("PYTHONFAULTHANDLER", 1))
	}
	return list
}

// socketVariables tell the libraries of a user's command which interface leads to the other nodes: that of the connection to the
// other agents. Gloo and TensorPipe would otherwise use the address of the host name, which on many machines is a loopback address.
// NCCL finds fast networks by itself, and gets the variable only if there is one interface, or the user has chosen one.
func (r *round) socketVariables(n rendezvous.RankNumbers) []variable {
	if r.cfg.Builtin || n.Nodes < 2 || r.cfg.OneMachine {
		return nil
	}
	name, chosen := r.rdzv.WorkerInterface()
	if name == "" {
		return nil // the libraries choose for themselves
	}
	list := []variable{optional("GLOO_SOCKET_IFNAME", name), optional("TP_SOCKET_IFNAME", name)}
	if chosen {
		list = append(list, optional("NCCL_SOCKET_IFNAME", "="+name)) // exactly this one
	}
	return list
}
