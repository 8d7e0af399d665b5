package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"ddpbatch/internal/testkit"
)

// meet is a worker with the same needs as PyTorch's: rank 0 listens on MASTER_ADDR:MASTER_PORT, and every other rank connects there and
// reports its place.
const meet = `
import os, socket, time
names = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE NODE_RANK MASTER_ADDR MASTER_PORT SLURM_PROCID"
place = " ".join(["place", socket.gethostname()] + [os.environ[name] for name in names.split()])
world = int(os.environ["WORLD_SIZE"])
master = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if os.environ["RANK"] == "0":
    lines = [place]
    with socket.create_server(master, backlog=world) as server:
        server.settimeout(60)
        while len(lines) < world:
            peer, _ = server.accept()
            with peer, peer.makefile() as words:
                lines.append(words.readline().strip())
    print("\n".join(lines), flush=True)
else:
    for _ in range(600):
        try:
            with socket.create_connection(master, timeout=5) as peer:
                peer.sendall((place + "\n").encode())
                break
        except ConnectionRefusedError:  # rank 0 comes later
            time.sleep(0.1)
    else:
        raise SystemExit("rank 0 never came")
`

// python returns the path of the interpreter behind python3, which may be a slow shim. Without python3, it skips the test.
func python(t *testing.T) string {
	path, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		t.Skipf("needs python3: %v", err)
	}
	return strings.TrimSpace(string(path))
}

// testSlurmRun starts Python workers with `srun ddpbatch run`, without a batch script of ddpbatch and without a run directory: as tasks
// that are ranks, and with one agent per node.
func testSlurmRun(t *testing.T, c *cluster) {
	python := python(t)
	script := c.write("meet.py", meet)
	for _, row := range []struct {
		name string
		srun string
		run  []string
		// fixed means that each task is a rank, with Slurm's number
		fixed bool
		world int
	}{
		{"task mode", "-N4 -n8 --ntasks-per-node=2", []string{"--", python, script}, true, 8},
		{"task mode, cyclic", "-N4 -n8 -m cyclic", []string{"--", python, script}, true, 8},
		{"agent mode", "-N4 --ntasks-per-node=1", []string{"--nproc-per-node", "3", "--", python, script}, false, 12},
		{"agent mode, as torchrun", "-N2 --ntasks-per-node=1", []string{"--nproc_per_node=2", script}, false, 4},
	} {
		args := append(strings.Fields(row.srun), "ddpbatch", "run", "--torch-store=false")
		c.checkWorkers(row.name, c.ok("srun", append(args, row.run...)...).stdout, row.fixed, row.world)
	}
	out := c.batch("-N4 -n7 --ntasks-per-node=2", fmt.Sprintf("srun ddpbatch run --torch-store=false -- %s %s\n", python, script))
	c.checkWorkers("task mode, uneven", out, true, 7)
}

func (c *cluster) checkWorkers(name, out string, fixed bool, world int) {
	t := c.t
	t.Helper()
	workers := readPlaces(t, out)
	c.checkPlaces(workers, world)
	if fixed {
		checkProcs(t, workers)
	}
	if t.Failed() {
		t.Fatalf("%s", name)
	}
}

// sayHand is a worker that runs without Slurm.
const sayHand = `SLURM_PROCID=-1; ` + sayPlace

// byHand starts one of two agents, on a node but outside of any job, as a user does in a terminal there.
func (c *cluster) byHand(rank int, port int, env ...string) *process {
	c.t.Helper()
	args := append([]string{"exec", clusterNodes[rank], "env"}, env...)
	return c.start(c.script, append(args, "ddpbatch", "run", "--nnodes", "2", "--node-rank", fmt.Sprint(rank), "--nproc-per-node", "2",
		"--master-addr", "n1", "--master-port", fmt.Sprint(port), "--", "sh", "-c", sayHand)...)
}

// handPort returns a MASTER_PORT for agents that a test starts by hand on this machine. They meet on the eight ports after it.
func handPort(t *testing.T) int { return testkit.FreePorts(t, 9) }

// handPorts holds the ports that cluster.handPort has returned. Tests run in parallel, and a test may not have opened its port yet.
var handPorts sync.Map

// handPort is like the function handPort, for node n1, which has its own ports. It chooses from a range in which little else listens, since
// others may use the cluster at the same time.
func (c *cluster) handPort() int {
	c.t.Helper()
	taken := c.ok(c.script, "exec", clusterNodes[0], "sh", "-c", "cat /proc/net/tcp*").stdout // proc(5): ADDRESS:PORT, in hexadecimal
	for {
		port := 20000 + 10*rand.IntN(1200)
		_, given := handPorts.LoadOrStore(port, nil)
		free := !given
		for next := port; next <= port+8 && free; next++ {
			free = !strings.Contains(taken, fmt.Sprintf(":%04X ", next))
		}
		if free {
			c.t.Logf("MASTER_PORT is %d", port)
			return port
		}
	}
}

// testSlurmRunByHand starts a run from two terminals. They share only the home folder, in which the first of them creates the key.
func testSlurmRunByHand(t *testing.T, c *cluster) {
	port := c.handPort()
	agents := []*process{c.byHand(0, port), c.byHand(1, port)}
	var out string
	for rank, agent := range agents {
		end := agent.end(commandLimit)
		if end.code != 0 {
			t.Errorf("agent %d: %v", rank, end)
		}
		out += end.stdout
	}
	workers := readPlaces(t, out)
	c.checkPlaces(workers, 4)
	if workers[0].master != "n1" || workers[0].port != port || countHost(workers, "n1") != 2 {
		t.Errorf("workers: %+v", workers)
	}
}

// testSlurmRunByHandSecret gives one of the two terminals another secret. Both sides report it, no worker starts, and both end when they
// get TERM.
func testSlurmRunByHandSecret(t *testing.T, c *cluster) {
	key := c.write("other-key", strings.Repeat("0123456789abcdef", 4)+"\n")
	c.ok("chmod", "600", key)
	port := c.handPort()
	host, joining := c.byHand(0, port), c.byHand(1, port, "DDPBATCH_SECRET_FILE="+key)
	eventually(t, commandLimit, "node 0 reports a refused connection", func() bool {
		return strings.Contains(host.stderr.String(), "refused")
	})
	eventually(t, commandLimit, "node 1 tells that its secret is wrong", func() bool {
		return strings.Contains(joining.stderr.String(), "secret")
	})
	if said := host.stderr.String(); !strings.Contains(said, "secret") || !strings.Contains(said, "10.") {
		t.Errorf("node 0 does not say who was refused, and why: %s", said)
	}
	for name, agent := range map[string]*process{"node 0": host, "node 1": joining} {
		agent.signal(syscall.SIGTERM)
		if end := agent.end(commandLimit); end.code == 0 || strings.Contains(end.stdout, "place") {
			t.Errorf("%s: %v", name, end)
		}
	}
}

// quoteTOML formats a list of strings as TOML. TOML supports JSON's escapes, but JSON does not escape DEL.
func quoteTOML(t *testing.T, words ...string) string {
	t.Helper()
	text, err := json.Marshal(words)
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(text), "\x7f", `\u007f`)
}

// A job that does not request cores gets one for each rank, or, with GPUs, the site's number of cores for each GPU. Its step has all of
// them, and the whole node if the job has that.
func testSlurmCores(t *testing.T, c *cluster) {
	if !strings.Contains(c.ok("sinfo", "-h", "-o", "%P").stdout, "gpu") {
		t.Skip("this cluster has no partition with cores for each GPU: scripts/slurm-cluster down, and up again")
	}
	whole := strings.TrimSpace(c.ok("sinfo", "-h", "-p", "main", "-o", "%c").stdout)
	for _, row := range []struct {
		name, lines, cores string
		args               []string
	}{
		{"cores", "", "2", nil},
		{"gpus", "gpus_per_node = 2", "2", nil},
		{"default", "partition = \"gpu\"\ngpus_per_node = 2", "6", nil},
		{"named", "partition = \"gpu\"\ngpus_per_node = 2\ncpus_per_task = 2", "4", nil},
		{"whole", "exclusive = true", whole, nil},
		{"whole-gpus", "gpus_per_node = 2\nexclusive = true", whole, nil},
		{"whole-default", "partition = \"gpu\"\ngpus_per_node = 2\nexclusive = true", whole, nil},
		{"skipped", "", "1", []string{"--set", `slurm.skip=["mincpus"]`}},
		{"skipped-default", "partition = \"gpu\"\ngpus_per_node = 2", "6", []string{"--set", `slurm.skip=["mincpus"]`}},
	} {
		c.commandJob(row.name, "nodes = 2\n"+row.lines, "2", "sh", "-c", `echo "$SLURM_CPUS_ON_NODE" >`+row.name+`.cores.$RANK`)
		c.ok("ddpbatch", append([]string{"submit", "--wait", row.name + ".toml"}, row.args...)...)
		for rank := range 4 {
			cores, err := os.ReadFile(filepath.Join(c.dir, fmt.Sprintf("%s.cores.%d", row.name, rank)))
			if err != nil || strings.TrimSpace(string(cores)) != row.cores {
				t.Errorf("%s: the step has %q cores on the node of rank %d, %v; want %s", row.name, cores, rank, err, row.cores)
			}
		}
	}
}
