package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"ddpbatch/internal/testkit"
)

// The nodes are on this machine, which sees their processes, also those of nodes that are cut off.

// kin is a process of a run on some node.
type kin struct {
	pid, parent, group, session int
	args, env                   []string
}

func (k kin) String() string {
	return fmt.Sprintf("%d on %s: %s", k.pid, k.get("SLURMD_NODENAME"), strings.Join(k.args, " "))
}

func (k kin) get(name string) string {
	for _, entry := range k.env {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	return ""
}

// isAgent reports whether the process is an agent of ddpbatch. isWorker reports whether it is a worker or was started by one: that is any
// process except agents, their guards, srun and the batch script.
func (k kin) isAgent() bool { return len(k.args) > 1 && k.args[1] == "run" }

func (k kin) isWorker(word string) bool {
	return k.get("RANK") != "" || word != "" && strings.Contains(strings.Join(k.args, " "), "1000."+word) && !k.isAgent()
}

// kin lists the live processes of a run, found by their environment or by a word on their command line.
func (s *submitted) kin(word string) (all []kin) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		env, err := os.ReadFile(dir + "/environ")
		cmdline, err2 := os.ReadFile(dir + "/cmdline")
		stat, err3 := os.ReadFile(dir + "/stat")
		if err != nil || err2 != nil || err3 != nil || len(cmdline) == 0 {
			continue // it has ended meanwhile
		}
		ours := bytes.Contains(append([]byte{0}, env...), []byte("\x00DDPBATCH_RUN_DIR="+s.dir.Path()+"\x00"))
		if !ours && (word == "" || !bytes.Contains(cmdline, []byte("1000."+word))) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(dir))
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // state, parent, ...
		parent, _ := strconv.Atoi(fields[1])
		group, _ := strconv.Atoi(fields[2])
		session, _ := strconv.Atoi(fields[3])
		all = append(all, kin{pid, parent, group, session, splitNUL(cmdline), splitNUL(env)})
	}
	return all
}

func splitNUL(text []byte) []string {
	return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
}

// agent returns the first agent on a node.
func (s *submitted) agent(node string) kin {
	s.c.t.Helper()
	for _, k := range s.kin("") {
		if k.isAgent() && k.get("SLURMD_NODENAME") == node {
			return k
		}
	}
	s.c.t.Fatalf("there is no agent on %s", node)
	return kin{}
}

// worker returns a rank's process, whatever program it runs by now: the leader of a process group in its agent's session. Processes that it
// has started are in its group or in their own sessions, whatever their parents are. While a process is in the middle of execve, it has no
// command line, and kin does not see it.
func (s *submitted) worker(rank int) (found kin) {
	s.c.t.Helper()
	eventually(s.c.t, testkit.Patience, fmt.Sprintf("rank %d has a process", rank), func() bool {
		all := s.kin("")
		at := slices.IndexFunc(all,
			func(k kin) bool { return k.get("RANK") == strconv.Itoa(rank) && k.group == k.pid && k.session != k.pid })
		if at >= 0 {
			found = all[at]
		}
		return at >= 0
	})
	return found
}

// signalled sends a signal to a process of a node.
func (c *cluster) signalled(sig syscall.Signal, pid int) time.Time {
	c.t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		c.t.Fatalf("send %v to %d: %v", sig, pid, err)
	}
	return time.Now()
}

// workersGone waits until no worker is left, and no process that one has started. It returns how long that took since the fault.
func (s *submitted) workersGone(word string, since time.Time) time.Duration {
	t := s.c.t
	t.Helper()
	ticker := time.NewTicker(10 * time.Millisecond) // between two looks at all processes
	defer ticker.Stop()
	for {
		left := slices.DeleteFunc(s.kin(word), func(k kin) bool { return !k.isWorker(word) })
		took := time.Since(since)
		if len(left) == 0 {
			t.Logf("%s: all workers were gone after %v", t.Name(), took.Round(time.Millisecond))
			return took
		}
		if took > commandLimit {
			t.Fatalf("%d processes of the workers are there after %v: %v", len(left), commandLimit, left)
		}
		<-ticker.C
	}
}

// nobodyLeft waits until no process of the run is left, including agents, srun and the batch script's last command. A process that does not
// end by itself lives much longer than nobodyLeft waits.
func (s *submitted) nobodyLeft(word string) {
	t := s.c.t
	t.Helper()
	var left []kin
	defer func() {
		if len(left) > 0 {
			t.Logf("still there: %v", left)
		}
	}()
	eventually(t, testkit.Patience, "nothing of the run is left", func() bool {
		left = s.kin(word)
		return len(left) == 0
	})
}

// verdictComes waits for the verdict of an attempt.
func (s *submitted) verdictComes(attempt int) {
	s.c.t.Helper()
	eventually(s.c.t, commandLimit, fmt.Sprintf("there is a verdict of attempt %d", attempt), func() bool {
		_, err := s.dir.Verdict(attempt)
		return err == nil
	})
}

// blames checks an attempt's verdict: its cause, and the host, rank and nodes that it names.
func (s *submitted) blames(attempt int, cause, host string, rank, exit int, nodes ...string) {
	t := s.c.t
	t.Helper()
	if v := s.verdict(attempt); v.Cause != cause || v.Host != host || v.FirstRank != rank || v.Exit != exit ||
		!slices.Equal(v.Nodes, nodes) {
		t.Errorf("verdict of attempt %d: %+v; want cause %s, host %s, rank %d, exit code %d, bad nodes %q", attempt, v, cause,
			host, rank, exit, nodes)
	}
}
