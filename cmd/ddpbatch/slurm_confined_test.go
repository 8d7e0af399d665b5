package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// hasCgroups reports whether Slurm confines tasks to their cores, memory and devices, and finds a step's processes by their cgroup. Without
// cgroups, Slurm follows parents: it misses processes whose parents end while it kills a step, and it also kills the agents' guards.
func (c *cluster) hasCgroups() bool {
	c.t.Helper()
	config := c.ok("scontrol", "show", "config").stdout
	return strings.Contains(config, "task/cgroup") && strings.Contains(config, "proctrack/cgroup")
}

// needsCgroups skips a test if the site has no cgroups.
func (c *cluster) needsCgroups() {
	c.t.Helper()
	if !c.hasCgroups() {
		c.t.Skip("this cluster has no cgroups: see scripts/slurm-cluster")
	}
}

// printFromRanks returns a command that runs shell words in each rank, and writes their output to a file named after the rank.
func printFromRanks(words string) []string {
	return []string{"sh", "-c", "{ " + words + "; } >$DDPBATCH_RUN_DIR/said.$RANK 2>&1"}
}

func (s *submitted) wrote(rank int) string {
	s.c.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir.Path(), fmt.Sprint("said.", rank)))
	if err != nil {
		s.c.t.Fatal(err)
	}
	return string(text)
}

// Ranks share the cores of the job on their node, as they do under torchrun, and have no other cores. Slurm binds none of them.
func testSlurmCoresOfRanks(t *testing.T, c *cluster) {
	if c.needsCgroups(); runtime.NumCPU() < 2 {
		t.Skip("needs two CPUs")
	}
	cores := printFromRanks("sed -n 's/^Cpus_allowed_list:\t//p' /proc/self/status")
	for _, row := range []struct {
		name, mode string
		nproc      int
	}{
		{"one", "agent", 1},
		{"two", "agent", 2},
		{"tasks", "task", 2},
	} {
		c.commandJob(row.name, "nodes = 2", strconv.Itoa(row.nproc), cores...)
		s := c.submit(row.name+".toml", "--set", "launch.mode="+row.mode)
		s.await()
		for rank := range 2 * row.nproc {
			if list := strings.TrimSpace(s.wrote(rank)); len(coresOf(t, list)) != row.nproc {
				t.Errorf("%s: rank %d may run on the cores %q, want %d of them", row.name, rank, list, row.nproc)
			}
		}
	}
}

// coresOf parses a list of cores in the kernel's format: 0-3,8.
func coresOf(t *testing.T, list string) (cores []int) {
	t.Helper()
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err1 := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		if err1 != nil || err2 != nil {
			t.Fatalf("%q is not a list of cores", list)
		}
		for core := from; core <= to; core++ {
			cores = append(cores, core)
		}
	}
	return cores
}

// Ranks can open only those GPUs of a node that the job has. The devices have no driver: opening one that is permitted fails with "No such
// device", and opening another one with "Operation not permitted".
func testSlurmDevicesOfRanks(t *testing.T, c *cluster) {
	c.needsCgroups()
	const may, mayNot = "No such device", "Operation not permitted"
	devices := filepath.Join(filepath.Dir(c.conf()), "dev")
	for _, row := range []struct {
		name, lines string
		says        []string // for each device
	}{
		{"none", "", []string{mayNot, mayNot}},
		{"both", "gpus_per_node = 2", []string{may, may}},
	} {
		c.commandJob(row.name, "nodes = 1\n"+row.lines, "1", printFromRanks("cat "+devices+"/gpu0; cat "+devices+"/gpu1")...)
		s := c.submit(row.name + ".toml")
		s.await()
		lines := strings.Split(strings.TrimSpace(s.wrote(0)), "\n")
		if len(lines) != 2 || !strings.Contains(lines[0], row.says[0]) || !strings.Contains(lines[1], row.says[1]) {
			t.Errorf("%s: a rank that opens the GPUs reads %q, want %q", row.name, lines, row.says)
		}
	}
}

// The kernel ends a job that needs more memory than it has. The verdict reports that, with the limit.
func testSlurmMemoryOfRanks(t *testing.T, c *cluster) {
	c.needsCgroups()
	c.commandJob("eater", "nodes = 2\nmem = \"300M\"", "1", "sh", "-c", eater)
	s := c.submit("eater.toml")
	s.await()
	v := s.verdict(1)
	if v.Cause != "oom" || !v.OOM || v.FirstRank != 1 || v.Signal != 9 || v.Host == "" {
		t.Errorf("verdict %+v", v)
	}
	report := strings.Join(strings.Fields(v.Report), " ") // the report is wrapped into lines
	if !strings.Contains(report, "memory limit of 300 MiB (the most that was used: 300 MiB) was reached") {
		t.Errorf("the report does not name the limit and the peak: %s", report)
	}
}

// When the job ends, no processes that ranks left behind in their own sessions are left.
func testSlurmSessionsOfRanks(t *testing.T, c *cluster) {
	c.needsCgroups()
	word := c.word()
	// A rank exits as soon as the processes that both ranks leave behind ignore signals.
	const leave = `(setsid sh -c 'trap "" TERM HUP; touch "$DDPBATCH_RUN_DIR/left.$RANK"; exec sleep "1000.$0"' "$0" &)
until [ -e "$DDPBATCH_RUN_DIR/left.0" ] && [ -e "$DDPBATCH_RUN_DIR/left.1" ]; do sleep 0.01; done; exit 3`
	c.commandJob("leaver", "nodes = 2", "1", "sh", "-c", leave, word)
	s := c.submit("leaver.toml")
	if job := s.await(); job["ExitCode"] != "3:0" {
		t.Errorf("the job ended with %s, want 3:0", job["ExitCode"])
	}
	eventually(t, commandLimit, "no process of a rank lives on", func() bool { return len(c.processes("1000."+word)) == 0 })
}
