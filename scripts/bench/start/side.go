package main

import (
	"os"
	"os/exec"
	"strconv"
	"strings"

	"ddpbatch/scripts/bench/internal/processes"
)

// side is one of those that are compared.
type side struct {
	name    string
	version string

	// command launches so many ranks.
	command func(ranks int) *exec.Cmd

	// met tells whether a line of its output is rank 0's word that all have met.
	met func(line string) bool
}

func saysMet(line string) bool { return line == "met" }

// ours is a program with package mpi, whose ranks make their secret of a key file.
func ours(ddpbatch, key string, rank ...string) side {
	return side{name: "ddpbatch run", met: saysMet, command: func(ranks int) *exec.Cmd {
		cmd := exec.Command(ddpbatch, append([]string{"run", "--standalone", "--nproc-per-node", strconv.Itoa(ranks), "--"}, rank...)...)
		cmd.Env = []string{"DDPBATCH_SECRET_FILE=" + key}
		return cmd
	}}
}

// builtin is ddpbatch's own program, which is larger; after the barrier its ranks average how long it took.
func builtin(ddpbatch, key string) side {
	s := ours(ddpbatch, key, ddpbatch, "bench", "startup", "--json")
	s.name = "ddpbatch run, its own program"
	s.met = func(line string) bool { return strings.HasPrefix(line, "{") && strings.Contains(line, `"time_us"`) }
	return s
}

func mpich(program, version string) side {
	return side{name: "mpirun of MPICH", version: version, met: saysMet, command: func(ranks int) *exec.Cmd {
		return exec.Command("mpirun.mpich", "-n", strconv.Itoa(ranks), program)
	}}
}

// openMPI has to be told that there may be more ranks than cores, and that root may.
func openMPI(program, version string) side {
	return side{name: "mpirun of Open MPI", version: version, met: saysMet, command: func(ranks int) *exec.Cmd {
		args := []string{"--oversubscribe"}
		if os.Geteuid() == 0 {
			args = append(args, "--allow-run-as-root")
		}
		return exec.Command("mpirun.openmpi", append(args, "-n", strconv.Itoa(ranks), program)...)
	}}
}

// gloo has all ranks meet on the loopback interface: it would ask for the machine's name otherwise.
const gloo = "GLOO_SOCKET_IFNAME=lo"

// oursOfTorch is ddpbatch with more flags. With --torch-store=false, PyTorch's ranks that are there before rank 0 serves its store try
// again a second later; otherwise the agent serves the store, as torchrun does.
func oursOfTorch(ddpbatch, python, script string, flags ...string) side {
	return side{name: strings.Join(append([]string{"ddpbatch run"}, flags...), " "), met: saysMet, command: func(ranks int) *exec.Cmd {
		args := append([]string{"run", "--standalone", "--nproc-per-node", strconv.Itoa(ranks)}, flags...)
		cmd := exec.Command(ddpbatch, append(args, "--", python, script)...)
		cmd.Env = []string{gloo}
		return cmd
	}}
}

// torchrun of PyTorch 1.13 does not get along with its own defaults of --redirects and --tee under Python 3.11, where enums do not
// list their aliases any more; what is said here is of a rank that there is not, and means the same. It meets at a port of its own,
// as --standalone would take 29400, which may be in use.
func torchrun(python, version, script string) side {
	return side{name: "torchrun", version: version, met: saysMet, command: func(ranks int) *exec.Cmd {
		absent := strconv.Itoa(ranks) + ":1"
		cmd := exec.Command(python, "-m", "torch.distributed.run", "--nproc_per_node="+strconv.Itoa(ranks), "--master_port="+processes.FreePort(),
			"--redirects="+absent, "--tee="+absent, script)
		cmd.Env = []string{gloo}
		return cmd
	}}
}
