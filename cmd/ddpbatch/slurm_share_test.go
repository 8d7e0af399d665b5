package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
)

// meetTogether runs meet in ranks that stay until the given number of ranks of all jobs and steps have met, so that their worlds exist at
// the same time. $0 is the program, $1 the script and $2 the number.
const meetTogether = `"$0" "$1" || exit
echo "name $SLURM_JOB_ID.$SLURM_STEP_ID" >"met.$SLURM_JOB_ID.$SLURM_STEP_ID.$RANK"
for _ in $(seq 1200); do
	[ "$(ls met.* | wc -l)" -lt "$2" ] || exit 0
	sleep 0.1
done
echo "only $(ls met.*) came" >&2
exit 1`

// serving, appended to a job's nproc_per_node, leaves MASTER_PORT to rank 0, as meet requires.
const serving = "\ntorch_store = false"

// meetTogetherWords returns the command for meetTogether.
func (c *cluster) meetTogetherWords(ranks int) []string {
	return []string{"sh", "-c", meetTogether, python(c.t), c.write("meet.py", meet), fmt.Sprint(ranks)}
}

// placesOf returns the places that the ranks of a job's first attempt printed.
func (s *submitted) placesOf() []seen {
	s.c.t.Helper()
	return readPlaces(s.c.t, s.c.ok("ddpbatch", "logs", s.id).stdout)
}

// testSlurmJobsShareNodes runs two jobs on the same two nodes at the same time. The ranks of each meet, and the jobs use different ports.
func testSlurmJobsShareNodes(t *testing.T, c *cluster) {
	c.commandJob("share", "nodes = 2\nnodelist = \"n[1-2]\"", "2"+serving, c.meetTogetherWords(8)...)
	jobs := []*submitted{c.submit("share.toml"), c.submit("share.toml")}
	var ports []int
	for _, s := range jobs {
		if job := s.await(); job["JobState"] != "COMPLETED" || job["NodeList"] != "n[1-2]" {
			t.Fatalf("Slurm says: %s on %s", job["JobState"], job["NodeList"])
		}
		places := s.placesOf()
		c.checkPlaces(places, 4)
		ports = append(ports, places[0].port)
	}
	if ports[0] == ports[1] {
		t.Errorf("two jobs on one node have one port: %d", ports)
	}
	onePortForTwo(t, c)
}

// onePortForTwo gives two jobs on the same nodes one MASTER_PORT: their ranks would meet those of the other job. The second job reports
// that before it starts a worker, and the first continues undisturbed.
func onePortForTwo(t *testing.T, c *cluster) {
	t.Helper()
	words := func(script string) []string {
		return []string{"-N2", "--ntasks-per-node=1", "-w", "n[1-2]", "ddpbatch", "run", "--master-port", "29517", "--", "sh", "-c", script}
	}
	first := c.start("srun", words(`touch "first.$RANK"; until [ -e second.ended ]; do sleep 0.1; done`)...)
	eventually(t, commandLimit, "the ranks of the first job run", func() bool {
		found, err := filepath.Glob(filepath.Join(c.dir, "first.*"))
		return err == nil && len(found) == 2
	})
	out := c.exits(1, "srun", words(`touch "second.$RANK"`)...)
	if !strings.Contains(out.stderr, "the workers' MASTER_PORT is to be 29517, which another run on this machine was given, too") {
		t.Errorf("the second job: %v", out)
	}
	if begun, err := filepath.Glob(filepath.Join(c.dir, "second.*")); err != nil || len(begun) > 0 {
		t.Errorf("the second job has started %q, %v", begun, err)
	}
	c.write("second.ended", "")
	if end := first.end(commandLimit); end.code != 0 {
		t.Errorf("the first job: %v", end)
	}
}

// The elements of an array run on the same nodes at the same time.
func testSlurmElementsShareNodes(t *testing.T, c *cluster) {
	c.commandJob("array", "nodes = 2\narray = \"0-2\"\nnodelist = \"n[3-4]\"", "1"+serving, c.meetTogetherWords(6)...)
	id := strings.TrimSpace(c.ok("ddpbatch", "submit", "array.toml", "--parsable", "--wait").stdout)
	ports := map[int]bool{}
	for i := range 3 {
		element := c.find(fmt.Sprintf("%s_%d", id, i))
		places := element.placesOf()
		c.checkPlaces(places, 2)
		ports[places[0].port] = true
		if v := element.verdict(1); v.Cause != "done" {
			t.Errorf("verdict of element %d: %+v", i, v)
		}
	}
	if len(ports) != 3 {
		t.Errorf("three elements on one node have the ports %v", ports)
	}
}

// testSlurmStepsShareNodes runs steps of one job at the same time: two on all of its nodes, and one on two of them, as tasks and as agents.
func testSlurmStepsShareNodes(t *testing.T, c *cluster) {
	words := c.meetTogetherWords(4 + 8 + 4)
	for i, word := range words {
		words[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	command := strings.Join(words, " ")
	c.batch("-N4 --ntasks-per-node=2", strings.ReplaceAll(`
srun --overlap -N4 -n4 --ntasks-per-node=1 ddpbatch run --torch-store=false -- COMMAND >step.0 &
one=$!
srun --overlap -N4 -n8 --ntasks-per-node=2 ddpbatch run --torch-store=false -- COMMAND >step.1 &
two=$!
srun --overlap -N2 -n2 -w 'n[3-4]' --ntasks-per-node=1 ddpbatch run --torch-store=false --nproc-per-node 2 -- COMMAND >step.2 &
three=$!
wait $one && wait $two && wait $three
`, "COMMAND", command))
	ports := map[string]bool{}
	for i, want := range []struct {
		world  int
		master string
	}{{4, "n1"}, {8, "n1"}, {4, "n3"}} {
		out, err := os.ReadFile(filepath.Join(c.dir, fmt.Sprintf("step.%d", i)))
		if err != nil {
			t.Fatal(err)
		}
		places := readPlaces(t, string(out))
		c.checkPlaces(places, want.world)
		if places[0].host != want.master { // MASTER_ADDR is where rank 0 is: checkPlaces checks that
			t.Errorf("step %d: rank 0 is on %s, want %s", i, places[0].host, want.master)
		}
		ports[fmt.Sprint(places[0].master, places[0].port)] = true
	}
	if len(ports) != 3 {
		t.Errorf("three steps at the same time meet at %v", ports)
	}
}

// Nodes with 2, 2 and 1 ranks work, whether Slurm or the agents start them.
func testSlurmUneven(t *testing.T, c *cluster) {
	command := python(t) + " " + c.write("meet.py", meet)
	places := readPlaces(t, c.batch("-N3 -n5 --ntasks-per-node=2", "srun ddpbatch run --torch-store=false -- "+command+"\n"))
	c.checkPlaces(places, 5)
	checkProcs(t, places)
	c.commandJob("uneven", "nodes = 3", "[2, 2, 1]"+serving, strings.Fields(command)...)
	s := c.submit("uneven.toml", "--wait")
	for i, places := range [][]seen{places, s.placesOf()} {
		c.checkPlaces(places, 5)
		var counts []int
		for _, node := range clusterNodes {
			counts = append(counts, countHost(places, node))
		}
		if slices.Sort(counts); !slices.Equal(counts, []int{0, 1, 2, 2}) {
			t.Errorf("run %d: Slurm made %d tasks on the nodes, and 2, 2, 1 were meant to be tested", i, counts)
		}
	}
}

// Two groups of a heterogeneous job are one world.
func testSlurmHeterogeneous(t *testing.T, c *cluster) {
	command := python(t) + " " + c.write("meet.py", meet)
	for _, nodes := range [][2]string{{"", ""}, {" -w n3", " -w n[1-2]"}} { // sorted by name, component 1 comes first
		places := readPlaces(t, c.batch("", `#SBATCH -N1 -n1`+nodes[0]+`
#SBATCH hetjob
#SBATCH -N2 -n4 --ntasks-per-node=2`+nodes[1]+`
srun --het-group=0,1 ddpbatch run --torch-store=false -- `+command+"\n"))
		checkProcs(t, places)
		if nodes[0] == "" {
			c.checkPlaces(places, 5)
			continue
		}
		for i, host := range []string{"n3", "n1", "n1", "n2", "n2"} { // Slurm numbers nodes by name: rank 0 would not be on node 0
			if p := places[i]; p.rank != i || p.host != host || p.nodeRank != []int{0, 1, 1, 2, 2}[i] || p.world != 5 || p.nodes != 3 {
				t.Errorf("rank %d is to be on %s: %+v", i, host, p)
			}
		}
	}
}

// testSlurmArbitrary places tasks by a list of hosts. If rank 0 is not on the first node, run refuses and names the node, since rank 0
// listens on MASTER_ADDR. The tasks that can detect this tell the others, with and without PMI-2.
func testSlurmArbitrary(t *testing.T, c *cluster) {
	command := []string{"ddpbatch", "run", "--torch-store=false", "--", python(t), c.write("meet.py", meet)}
	hosts := []string{"n1", "n3", "n3", "n2", "n4", "n1", "n4", "n2"} // two on each: nodes have two CPUs
	run := func(mpi string) output {
		list := c.write("hosts", strings.Join(hosts, "\n")+"\n")
		return c.run("env", append([]string{"SLURM_HOSTFILE=" + list, "srun", "-m", "arbitrary", "-n8", "--mpi=" + mpi}, command...)...)
	}
	out := run("none")
	if out.code != 0 {
		t.Fatalf("srun: %v", out)
	}
	places := readPlaces(t, out.stdout)
	c.checkPlaces(places, 8)
	checkProcs(t, places)
	for i, p := range places {
		if p.host != hosts[i] {
			t.Errorf("rank %d ran on %s, and the list says %s", i, p.host, hosts[i])
		}
	}
	hosts[0], hosts[1] = hosts[1], hosts[0]
	for _, mpi := range []string{"none", "pmi2"} {
		var out output
		testkit.Promptly(t, 30*time.Second, func() time.Duration {
			begun := time.Now()
			out = run(mpi)
			return time.Since(begun)
		})
		if out.code == 0 || strings.Count(out.stderr, "begin the list of hosts with n1") < 8 {
			t.Errorf("rank 0 on n3, %s: %v", mpi, out)
		}
	}
}
