package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"time"

	"ddpbatch/scripts/bench/internal/processes"
)

// bound tells whether there is a core for each rank: then all sides bind them. ddpbatch does so by itself.
func bound(s setting) bool { return s.Ranks <= runtime.NumCPU() }

// openMPI is mpirun.openmpi with peers/mpi.c. Over TCP it is told to use nothing else, on the loopback
// interface; it yields the core by itself where there are more ranks than cores. Left alone it would bind more than two
// ranks to sockets (mpirun(1)); overload-allowed is for hardware threads of one core.
func openMPI(program, version string) side {
	return side{
		name: "Open MPI", version: version, startup: 500 * time.Millisecond,
		takes: func(setting) bool { return true },
		parse: parsePeer,
		commands: func(o options, s setting) []*exec.Cmd {
			args := []string{"--oversubscribe"}
			if os.Geteuid() == 0 {
				args = append(args, "--allow-run-as-root")
			}
			if bound(s) {
				args = append(args, "--bind-to", "core:overload-allowed")
			}
			if s.Transport == "tcp" {
				args = append(args, "--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo")
			}
			args = append(args, "-n", strconv.Itoa(s.Ranks), program)
			return []*exec.Cmd{exec.Command("mpirun.openmpi", append(args, peerArgs(o, s)...)...)}
		},
	}
}

// mpich is mpirun.mpich with peers/mpi.c. Over TCP it often hangs in MPI_Finalize (4.0.2 with UCX), which
// launch sees to. It binds nothing unless it is told to.
func mpich(program, version string) side {
	return side{
		name: "MPICH", version: version, startup: time.Second,
		takes: func(setting) bool { return true },
		parse: parsePeer,
		commands: func(o options, s setting) []*exec.Cmd {
			var args []string
			if bound(s) {
				args = append(args, "-bind-to", "core")
			}
			args = append(args, "-n", strconv.Itoa(s.Ranks), program)
			cmd := exec.Command("mpirun.mpich", append(args, peerArgs(o, s)...)...)
			if s.Transport == "tcp" {
				cmd.Env = append(cmd.Env, "UCX_TLS=tcp,self", "UCX_NET_DEVICES=lo", "MPIR_CVAR_NOLOCAL=1")
			}
			return []*exec.Cmd{cmd}
		},
	}
}

// gloo is PyTorch's, with ranks started by environment variables, as torchrun would: Debian's does not start
// under its own Python. gloo.py binds them.
func gloo(python, script, version string) side {
	return side{
		name: "gloo", version: version, startup: 4 * time.Second,
		takes: func(s setting) bool { return s.Transport == "tcp" && s.Collective != "reducescatter" },
		parse: parsePeer,
		commands: func(o options, s setting) []*exec.Cmd {
			port := processes.FreePort()
			var ranks []*exec.Cmd
			for rank := range s.Ranks {
				cmd := exec.Command(python, append([]string{script}, peerArgs(o, s)...)...)
				cmd.Env = []string{
					"RANK=" + strconv.Itoa(rank), "WORLD_SIZE=" + strconv.Itoa(s.Ranks), "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + port,
					"GLOO_SOCKET_IFNAME=lo", "OMP_NUM_THREADS=1",
				}
				ranks = append(ranks, cmd)
			}
			return ranks
		},
	}
}

// parsePeer reads `row SIZE TIME_US WRONG`.
func parsePeer(line string) (sample, bool) {
	var s sample
	n, err := fmt.Sscanf(line, "row %d %f %d", &s.size, &s.us, &s.wrong)
	return s, n == 3 && err == nil
}
