package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"ddpbatch/internal/exit"
)

// seen is what one task or worker saw. host is the output of hostname(1); the rest is from its environment.
type seen struct {
	host                               string
	rank, localRank, world, localWorld int
	node, nodes, nodeRank              int
	master                             string
	port                               int
	proc                               int // SLURM_PROCID
}

// sayPlace prints a line that readPlaces reads.
const sayPlace = `echo "place $(hostname) $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE $NODE_RANK ` +
	`$MASTER_ADDR $MASTER_PORT $SLURM_PROCID"`

// envAndPrint is a task that sets its variables from `ddpbatch env` and prints them.
const envAndPrint = `set -e; ddpbatch env >/dev/null; eval "$(ddpbatch env)"; ` + sayPlace

// readPlaces reads the lines of all tasks, in the order of their ranks.
func readPlaces(t *testing.T, out string) (tasks []seen) {
	t.Helper()
	for line := range strings.Lines(out) {
		if at := strings.Index(line, "] place "); at >= 0 && line[0] == '[' { // [HOST RANK], the prefix of lines if run has several ranks
			line = line[at+2:]
		}
		words := strings.Fields(line)
		if len(words) == 0 || words[0] != "place" {
			continue
		}
		if len(words) != 12 {
			t.Fatalf("some variable is not set: %s", line)
		}
		number := func(i int) int {
			n, err := strconv.Atoi(words[i])
			if err != nil {
				t.Fatalf("%v in: %s", err, line)
			}
			return n
		}
		tasks = append(tasks, seen{
			host: words[1], rank: number(2), localRank: number(3), world: number(4), localWorld: number(5),
			node: number(6), nodes: number(7), nodeRank: number(8), master: words[9], port: number(10), proc: number(11),
		})
	}
	slices.SortFunc(tasks, func(a, b seen) int { return cmp.Compare(a.rank, b.rank) })
	return tasks
}

// checkPlaces compares the variables of tasks with where the tasks ran. It assumes only torchrun's meaning of the variables: the ranks of a
// node are numbered in the order of their ranks in the world, nodes are in Slurm's order, and MASTER_ADDR is where rank 0 runs.
func (c *cluster) checkPlaces(tasks []seen, world int) {
	t := c.t
	t.Helper()
	if len(tasks) != world {
		t.Fatalf("%d tasks spoke, want %d: %+v", len(tasks), world, tasks)
	}
	byHost := map[string][]int{}
	for _, task := range tasks {
		byHost[task.host] = append(byHost[task.host], task.rank)
	}
	var hosts []string
	for _, name := range clusterNodes {
		if byHost[name] != nil {
			hosts = append(hosts, name)
		}
	}
	if len(hosts) != len(byHost) {
		t.Fatalf("tasks ran on %v, and the nodes are %q", byHost, clusterNodes)
	}
	for i, got := range tasks {
		node := slices.Index(hosts, got.host)
		want := seen{
			host: got.host, rank: i, world: world,
			localRank: slices.Index(byHost[got.host], i), localWorld: len(byHost[got.host]),
			node: node, nodes: len(hosts), nodeRank: node,
			master: tasks[0].master, port: tasks[0].port, proc: got.proc,
		}
		if got != want {
			t.Errorf("rank %d is told %+v, and it is %+v", i, got, want)
		}
	}
	if got := c.nodeAt(tasks[0].master); got != tasks[0].host && !(got == "loopback" && len(hosts) == 1) {
		t.Errorf("MASTER_ADDR is %s (%s), and rank 0 is on %s", tasks[0].master, got, tasks[0].host)
	}
	if port := tasks[0].port; port < 1024 || port > 65535 || port >= 32768 && port <= 60999 {
		t.Errorf("MASTER_PORT is %d: reserved, or of those that Linux gives to clients", port)
	}
}

// checkProcs checks that every task's rank is the number that Slurm gave it.
func checkProcs(t *testing.T, tasks []seen) {
	t.Helper()
	for _, task := range tasks {
		if task.rank != task.proc {
			t.Errorf("the task with SLURM_PROCID %d has RANK %d", task.proc, task.rank)
		}
	}
}

// batch runs a batch script to its end, in the test's folder, and returns its output.
func (c *cluster) batch(options, text string) string {
	c.t.Helper()
	script := c.write("batch.sh", "#!/bin/bash\n#SBATCH --output=batch.out\n"+text)
	// sbatch --wait checks for the job's end at longer and longer intervals
	id := strings.TrimSpace(c.ok("sbatch", append(append([]string{"--parsable"}, strings.Fields(options)...), script)...).stdout)
	job := (&submitted{c: c, id: id}).await()
	printed, err := os.ReadFile(filepath.Join(c.dir, "batch.out"))
	if err != nil || job["JobState"] != "COMPLETED" {
		c.t.Fatalf("Slurm says: %s, exit code %s; %v, its output:\n%s", job["JobState"], job["ExitCode"], err, printed)
	}
	return string(printed)
}

// testSlurmEnv runs `ddpbatch env` in the tasks of each layout that Slurm supports.
func testSlurmEnv(t *testing.T, c *cluster) {
	for _, layout := range []struct {
		name   string
		srun   string
		counts []int // of tasks on each node; nil: whatever Slurm chooses
		world  int
	}{
		{"block", "-N4 -n8 --ntasks-per-node=2 -m block", []int{2, 2, 2, 2}, 8},
		{"cyclic", "-N4 -n8 -m cyclic", nil, 8},
		{"packed", "-N4 -n7", nil, 7},
		{"one node", "-N1 -n3", []int{3}, 3},
		{"overcommitted", "-N4 -n32 -O", []int{8, 8, 8, 8}, 32},
	} {
		args := append(strings.Fields(layout.srun), "bash", "-c", envAndPrint)
		c.checkLayout(layout.name, c.ok("srun", args...).stdout, layout.counts, layout.world)
	}
	// with 7 tasks, only the srun of a batch script makes these layouts
	for _, distribution := range []string{"block", "cyclic"} {
		out := c.batch("-N4 -n7 --ntasks-per-node=2", "srun -m "+distribution+" bash -c '"+envAndPrint+"'\n")
		c.checkLayout("uneven, "+distribution, out, []int{2, 2, 2, 1}, 7)
	}
}

func (c *cluster) checkLayout(name, out string, counts []int, world int) {
	t := c.t
	t.Helper()
	tasks := readPlaces(t, out)
	c.checkPlaces(tasks, world)
	checkProcs(t, tasks)
	var got []int
	for _, node := range clusterNodes {
		if n := countHost(tasks, node); n > 0 {
			got = append(got, n)
		}
	}
	if counts != nil && !slices.Equal(got, counts) {
		t.Errorf("%s: Slurm made %d tasks on the nodes, and %d were meant to be tested", name, got, counts)
	}
	if t.Failed() {
		t.Fatalf("%s", name)
	}
}

func countHost(tasks []seen, host string) (n int) {
	for _, task := range tasks {
		if task.host == host {
			n++
		}
	}
	return n
}

// testSlurmEnvArbitrary places tasks by a list of hosts.
func testSlurmEnvArbitrary(t *testing.T, c *cluster) {
	hosts := []string{"n1", "n3", "n3", "n2", "n4", "n1", "n4", "n2"} // two on each: nodes have two CPUs
	tasks := readPlaces(t, c.arbitrary(hosts).stdout)
	c.checkPlaces(tasks, len(hosts))
	checkProcs(t, tasks)
	for _, task := range tasks {
		if task.host != hosts[task.rank] {
			t.Errorf("rank %d ran on %s, and the list says %s", task.rank, task.host, hosts[task.rank])
		}
	}

	// Here rank 0 is not on the first node. Rank 0 listens on MASTER_ADDR, so if that were another node, the other ranks would wait
	// forever.
	hosts[0], hosts[1] = hosts[1], hosts[0]
	out := c.arbitrary(hosts)
	if out.code == exit.Usage && strings.Contains(out.stderr, "n3") {
		return // refused, and the message names the node
	}
	c.checkPlaces(readPlaces(t, out.stdout), len(hosts))
}

// arbitrary runs a task on each host of a list, in its order.
func (c *cluster) arbitrary(hosts []string) output {
	c.t.Helper()
	list := c.write("hosts", strings.Join(hosts, "\n")+"\n")
	return c.run("env", "SLURM_HOSTFILE="+list, "srun", "-m", "arbitrary", "-n", strconv.Itoa(len(hosts)), "bash", "-c", envAndPrint)
}

// testSlurmEnvSteps runs several steps in one job: two on all four nodes, and one on the last two. Each has its own world, master and port.
func testSlurmEnvSteps(t *testing.T, c *cluster) {
	var script strings.Builder
	for i, srun := range []string{"-N4 -n4", "-N4 -n4", "-N2 -n4 -w n[3-4]"} {
		fmt.Fprintf(&script, "srun %s bash -c '%s' >step.%d || exit\n", srun, envAndPrint, i)
	}
	c.batch("-N4 -n8 --ntasks-per-node=2", script.String())
	ports := map[int]bool{}
	for i, want := range []struct {
		world  int
		master string
	}{{4, "n1"}, {4, "n1"}, {4, "n3"}} {
		out, err := os.ReadFile(filepath.Join(c.dir, fmt.Sprintf("step.%d", i)))
		if err != nil {
			t.Fatal(err)
		}
		tasks := readPlaces(t, string(out))
		c.checkPlaces(tasks, want.world)
		checkProcs(t, tasks)
		if tasks[0].master != want.master {
			t.Errorf("step %d: MASTER_ADDR is %s, want %s", i, tasks[0].master, want.master)
		}
		ports[tasks[0].port] = true
	}
	// Ports are hashed onto a few thousand numbers, so two of the three may collide, but very rarely.
	if len(ports) == 1 {
		t.Errorf("three steps have one port: %v", ports)
	}
}

// The three formats print the same variables.
func testSlurmEnvFormats(t *testing.T, c *cluster) {
	c.ok("srun", "-N2", "-n2", "bash", "-c", `set -e
		ddpbatch env --format json >json.$SLURM_PROCID
		ddpbatch env --format dotenv >dotenv.$SLURM_PROCID
		shell=$(ddpbatch env)
		env -i bash -c 'eval "$0"; env -0' "$shell" >shell.$SLURM_PROCID`)
	for rank := range 2 {
		read := func(name string) string {
			text, err := os.ReadFile(filepath.Join(c.dir, fmt.Sprintf("%s.%d", name, rank)))
			if err != nil {
				t.Fatal(err)
			}
			return string(text)
		}
		vars := decode[map[string]string](t, []byte(read("json")))
		if vars["RANK"] != strconv.Itoa(rank) || vars["WORLD_SIZE"] != "2" || vars["MASTER_ADDR"] == "" || vars["MASTER_PORT"] == "" {
			t.Errorf("rank %d: --format json: %v", rank, vars)
		}
		dotenv := map[string]string{}
		for line := range strings.Lines(read("dotenv")) {
			name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
			text, err := strconv.Unquote(value)
			if err != nil {
				t.Errorf("rank %d: --format dotenv: %q: %v", rank, line, err)
			}
			dotenv[name] = text
		}
		shell := strings.Split(read("shell"), "\x00")
		for name, value := range vars {
			if dotenv[name] != value || !slices.Contains(shell, name+"="+value) {
				t.Errorf("rank %d: %s is %q in json, %q in dotenv, and in shell %q", rank, name, value, dotenv[name], shell)
			}
		}
		if len(dotenv) != len(vars) {
			t.Errorf("rank %d: dotenv has %d variables, json %d", rank, len(dotenv), len(vars))
		}
	}
}
