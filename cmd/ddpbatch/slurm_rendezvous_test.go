package main

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
)

// sayNetwork is sayPlace and the variables that describe the network to libraries.
const sayNetwork = sayPlace + `; echo "network $GLOO_SOCKET_IFNAME $NCCL_SOCKET_IFNAME $TP_SOCKET_IFNAME $(env | grep -c ^PMI_)"`

// Agents of four nodes find each other through Slurm's PMI-2, which needs neither a port nor a key, and without PMI-2 through ports that
// they know.
func testSlurmRendezvous(t *testing.T, c *cluster) {
	key := filepath.Join(c.home, ".config", "ddpbatch", "key")
	for _, mpi := range []string{"pmi2", "none"} {
		for _, network := range []string{"", "eth0", "10.0.0.0/8", "^lo,docker"} {
			args := []string{"--mpi=" + mpi, "-N4", "--ntasks-per-node=1", "ddpbatch", "run", "--nproc-per-node", "2"}
			if network != "" {
				args = append(args, "--interface", network)
			}
			out := c.ok("srun", append(args, "--", "bash", "-c", sayNetwork)...).stdout
			workers := readPlaces(t, out)
			c.checkPlaces(workers, 8)
			for _, w := range workers {
				if addr, err := netip.ParseAddr(w.master); err != nil || addr.IsLoopback() || w.master != workers[0].master {
					t.Errorf("--mpi=%s, interface %q: MASTER_ADDR is %s, where names need not be known", mpi, network, w.master)
				}
			}
			if n := strings.Count(out, "network eth0 =eth0 eth0 0\n"); n != 8 {
				t.Errorf("--mpi=%s, interface %q: %d of 8 workers are told the network: %s", mpi, network, n, out)
			}
		}
		if _, err := os.Stat(key); errors.Is(err, fs.ErrNotExist) != (mpi == "pmi2") {
			t.Errorf("after --mpi=%s the key file: %v", mpi, err)
		}
	}
	out := c.ok("srun", "--mpi=pmi2", "-N2", "-n5", "-m", "cyclic", "ddpbatch", "run", "--", "bash", "-c", sayPlace).stdout
	c.checkPlaces(readPlaces(t, out), 5)
	checkProcs(t, readPlaces(t, out))
	out = c.ok("srun", "--mpi=pmi2", "-N1", "-n3", "ddpbatch", "run", "--", "bash", "-c", sayPlace).stdout
	c.checkPlaces(readPlaces(t, out), 3)
}

// testSlurmRendezvousTimesOut checks the messages that users see if their agents cannot meet.
func testSlurmRendezvousTimesOut(t *testing.T, c *cluster) {
	// A Debian node resolves its own name to 127.0.1.1. Here node 1 resolves node 0's name so.
	misnamed := c.write("misnamed.sh", `#!/bin/bash
[ "$SLURM_NODEID" = 1 ] || exec "$@"
hosts=$(mktemp) && sed 's/^[0-9.]*\( *\t* *n1\)$/127.0.1.1\1/' /etc/hosts >$hosts
exec unshare -m bash -c 'mount --bind '$hosts' /etc/hosts && rm -f '$hosts' && exec "$@"' - "$@"
`)
	// a task that ends before it has sent anything
	silent := c.write("silent.sh", `#!/bin/bash
[ "$SLURM_NODEID" != 1 ] || exit 7
exec "$@"
`)
	for _, row := range []struct {
		name  string
		mpi   string
		words []string // before ddpbatch run
		run   []string
		code  int // srun's: the highest of the tasks' codes; 0: all agents come, however long that takes
		want  []string
	}{
		{"another node's name", "none", []string{misnamed}, nil, 124,
			[]string{"n1 resolves to 127.0.1.1 on n2, which is n2 itself and not another node", "127.0.1.1: connect: connection refused",
				"missing: agent 1 (n2)"}},
		{"another node's name, not needed", "pmi2", []string{misnamed}, nil, 0, nil},
		{"a task that ends", "pmi2", []string{silent}, nil, 124,
			[]string{"agent 2 on n3 waited 6s for every task of the step to come to Slurm's PMI-2, and some did not"}},
		{"a task that ends, by ports", "none", []string{silent}, nil, 124, []string{"2 of 3 agents came within 6s; missing: agent 1 (n2)"}},
	} {
		args := append([]string{"--mpi=" + row.mpi, "-w", "n1,n2,n3", "--ntasks-per-node=1"}, row.words...)
		limit := "6"
		if row.code == 0 {
			limit = "90"
		}
		args = append(append(append(args, "ddpbatch", "run", "--join-timeout", limit), row.run...), "--", "true")
		for tries := 1; ; tries++ {
			begun := time.Now()
			out := c.run("srun", args...)
			took := time.Since(begun)
			unsaid := slices.DeleteFunc(slices.Clone(row.want), func(want string) bool { return strings.Contains(out.stderr, want) })
			if out.code == row.code && len(unsaid) == 0 && (took <= 30*time.Second || !testkit.IsLong()) {
				break
			}
			if tries == 5 { // on a busy machine Slurm may start one of the tasks too late for the others
				t.Errorf("%s: it took %v, nobody says %q, want exit code %d; no better before: %v", row.name, took, unsaid, row.code, out)
				break
			}
		}
	}
}

// An agent that cannot take part reports why, and all agents end at once. It may be one agent, several, or agent 0, and the run may need
// all nodes or only some.
func testSlurmAgentCannotTakePart(t *testing.T, c *cluster) {
	own := c.write("own.sh", `#!/bin/bash
[ "$1" = "" ] || [ "$1" = "$SLURM_NODEID" ] || set -- "$1" ""
exec ddpbatch run --join-timeout 60 $2 -- true
`)
	const notNode0 = "agent 0 on n1 cannot take part: --node-rank is 1, but for Slurm this is node 0 (n1); leave it out"
	for _, row := range []struct {
		name string
		node string // the only node with the flags; "": all nodes
		run  string
		code int
		want string // from the agents that could take part, or from all
	}{
		{"the batch script's own number", "", "--node-rank 0", 2, " cannot take part: --node-rank is 0, but for Slurm this is node "},
		{"another node's number", "", "--node-rank 1", 2, notNode0},
		{"another node's number, on the first node", "0", "--node-rank 1", 2, notNode0},
		{"the batch script's own number, two needed", "", "--nnodes 2:3 --node-rank 0", 2,
			" cannot take part: --node-rank is 0, but for Slurm this is node "},
		{"another node's number, two needed", "", "--nnodes 2:3 --node-rank 1", 2, notNode0},
		{"an interface that is not there", "", "--interface ib0", 1,
			`on n1: no network address that "ib0" (interface) allows; it has lo 127.0.0.1/8`},
		{"a network that one node does not have", "1", "--interface 10.253.0.0/16", 1,
			`agent 1 on n2 cannot take part: on n2: no network address that "10.253.0.0/16" (interface) allows`},
	} {
		for _, mpi := range []string{"pmi2", "none"} {
			// waiting for agents that do not come takes ten seconds each time
			testkit.Promptly(t, 9*time.Second, func() time.Duration {
				begun := time.Now()
				out := c.exits(row.code, "srun", "--mpi="+mpi, "-w", "n1,n2,n3", "-n3", own, row.node, row.run)
				if !strings.Contains(out.stderr, row.want) {
					t.Errorf("%s, --mpi=%s: nobody says %q: %s", row.name, mpi, row.want, out.stderr)
				}
				t.Logf("%s, --mpi=%s: it took %v", row.name, mpi, time.Since(begun))
				return time.Since(begun)
			})
		}
	}
	// srun takes the number of its tasks from the job: Slurm 22.05 even with --ntasks-per-node, 25.11 no longer
	newer := c.release() >= "25.11"
	for _, mpi := range []string{"pmi2", "none"} {
		if newer {
			out := c.ok("salloc", "-Q", "-N3", "-n5", "srun", "--mpi="+mpi, "-N3", "--ntasks-per-node=1",
				"ddpbatch", "run", "--nproc-per-node", "2", "--", "bash", "-c", sayPlace)
			c.checkPlaces(readPlaces(t, out.stdout), 6)
			continue
		}
		out := c.exits(2, "salloc", "-Q", "-N3", "-n5", "srun", "--mpi="+mpi, "-N3", "--ntasks-per-node=1", "ddpbatch", "run",
			"--nproc-per-node", "2", "--", "true")
		if n := strings.Count(out.stderr, "srun -N3 -n3 --ntasks-per-node=1"); n != 5 {
			t.Errorf("--mpi=%s: %d of 5 tasks tell what to type: %s", mpi, n, out.stderr)
		}
		out = c.ok("salloc", "-Q", "-N3", "-n5", "srun", "--mpi="+mpi, "-N3", "-n3", "--ntasks-per-node=1", "ddpbatch", "run",
			"--nproc-per-node", "2", "--", "bash", "-c", sayPlace)
		c.checkPlaces(readPlaces(t, out.stdout), 6) // after the user types that
	}
}
