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
// cgroups it follows parents: it misses processes whose parents end while it kills a step, and it kills the agents' guards as well.
func (c *cluster) hasCgroups() bool {
	c.t.Helper()
	config := c.ok("scontrol", "show", "config").stdout
	return strings.Contains(config, "task/cgroup") && strings.Contains(config, "proctrack/cgroup")
}

// needsCgroups skips a test where the site has none.
func (c *cluster) needsCgroups() {
	c.t.Helper()
	if !c.hasCgroups() {
		c.t.Skip("this cluster has no cgroups: see scripts/slurm-cluster")
	}
}

// printFromRanks is a command that writes what shell words print to a file of each rank, and what these files then hold, by rank.
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

// testSlurmCoresOfRanks: ranks share the cores of the job on their node, as they do under torchrun, and have no others: Slurm binds none
// of them.
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

// coresOf reads a list as the kernel writes it: 0-3,8.
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

// testSlurmDevicesOfRanks: of a node's GPUs, ranks can open those that the job has. No driver is behind them: the kernel says so where a
// device may be opened, and that it is not permitted where it may not.
func testSlurmDevicesOfRanks(t *testing.T, c *cluster) {
	c.needsCgroups()
	const may, mayNot = "No such device", "Operation not permitted"
	devices := filepath.Join(filepath.Dir(c.conf()), "dev")
	for _, row := range []struct {
		name, lines string
		says        []string // of each device
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

// testSlurmMemoryOfRanks: a job that needs more than its memory is ended by the kernel, and reported as such, with the limit.
func testSlurmMemoryOfRanks(t *testing.T, c *cluster) {
	c.needsCgroups()
	c.commandJob("eater", "nodes = 2\nmem = \"300M\"", "1", "sh", "-c", eater)
	s := c.submit("eater.toml")
	s.await()
	v := s.verdict(1)
	if v.Cause != "oom" || !v.OOM || v.FirstRank != 1 || v.Signal != 9 || v.Host == "" {
		t.Errorf("verdict %+v", v)
	}
	report := strings.Join(strings.Fields(v.Report), " ") // it is folded
	if !strings.Contains(report, "memory limit of 300 MiB (the most that was used: 300 MiB) was reached") {
		t.Errorf("the report does not name the limit and the peak: %s", report)
	}
}

// testSlurmSessionsOfRanks: what ranks leave behind in sessions of its own is gone with the job.
func testSlurmSessionsOfRanks(t *testing.T, c *cluster) {
	c.needsCgroups()
	word := c.word()
	// A rank ends when what both leave behind ignores signals.
	const leave = `(setsid sh -c 'trap "" TERM HUP; touch "$DDPBATCH_RUN_DIR/left.$RANK"; exec sleep "1000.$0"' "$0" &)
until [ -e "$DDPBATCH_RUN_DIR/left.0" ] && [ -e "$DDPBATCH_RUN_DIR/left.1" ]; do sleep 0.01; done; exit 3`
	c.commandJob("leaver", "nodes = 2", "1", "sh", "-c", leave, word)
	s := c.submit("leaver.toml")
	if job := s.await(); job["ExitCode"] != "3:0" {
		t.Errorf("the job ended with %s, want 3:0", job["ExitCode"])
	}
	eventually(t, commandLimit, "no process of a rank lives on", func() bool { return len(c.processes("1000."+word)) == 0 })
}
