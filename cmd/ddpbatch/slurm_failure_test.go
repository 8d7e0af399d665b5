package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"ddpbatch/internal/exit"
)

// crashCommand waits until the other 7 ranks run; then rank 4, the first on the third of four nodes, exits with 7.
const crashCommand = `
if [ "$RANK" = 4 ]; then
	until [ "$(ls running.* 2>/dev/null | wc -l)" = $((WORLD_SIZE - 1)) ]; do sleep 0.05; done
	echo "rank 4 gives up" >&2
	exit 7
fi
echo "rank $RANK sleeps"
touch "running.$RANK"
exec sleep 1000`

// If one rank fails, the whole job ends with that rank's exit code.
func testSlurmCrash(t *testing.T, c *cluster) {
	c.commandJob("crash", "nodes = 4", "2", "sh", "-c", crashCommand)
	s := c.submit("crash.toml", "--set", `launch.grace="10m"`) // far longer than the test waits for the job
	eventually(t, commandLimit, "rank 4 has exited", func() bool {
		text, err := os.ReadFile(s.dir.LogPath(1, "n3", 4, "err"))
		return err == nil && strings.Contains(string(text), "gives up")
	})
	job := s.await()
	if job["JobState"] != "FAILED" || job["ExitCode"] != "7:0" {
		t.Errorf("Slurm says: %s, exit code %s", job["JobState"], job["ExitCode"])
	}
	if v := s.verdict(1); v.Cause != "crash" || v.Exit != 7 || v.FirstRank != 4 || v.Host != "n3" ||
		!strings.Contains(v.Message, "rank 4 on n3") {
		t.Errorf("verdict: %+v", v)
	}
	s.gone()
	for rank := range 8 {
		want := fmt.Sprintf("rank %d sleeps\n", rank)
		if rank == 4 {
			want = "rank 4 gives up\n"
		}
		if out := c.ok("ddpbatch", "logs", s.id, "--rank", strconv.Itoa(rank)).stdout; out != want {
			t.Errorf("the log of rank %d holds %q, want %q", rank, out, want)
		}
	}
	if out := c.exits(7, "ddpbatch", "logs", "-f", s.id); !strings.Contains(out.stderr, "rank 4 on n3 exited with code 7") {
		t.Errorf("logs -f of the ended job: %v", out)
	}
}

// faultyGPU makes rank 1 of the first attempt report that its GPU has failed, once rank 0 runs. In a later attempt all ranks exit with 0.
const faultyGPU = `
[ ! -e failed ] || exit 0
[ "$RANK" = 1 ] || { touch running; exec sleep 1000; }
until [ -e running ]; do sleep 0.05; done
touch failed
echo "RuntimeError: CUDA error: uncorrectable ECC error encountered" >&2
exit 1`

// A rank reports that its node's GPU has failed. By the default policy, the job is requeued without that node.
func testSlurmFaultyGPU(t *testing.T, c *cluster) {
	c.commandJob("ecc", "nodes = 2", "1", "sh", "-c", faultyGPU)
	s := c.submit("ecc.toml")
	job := s.await()
	v := s.verdict(1)
	if v.Cause != "node" || v.FirstRank != 1 || len(v.Nodes) != 1 || v.Nodes[0] != v.Host || v.Class != "infrastructure" || !v.Requeue {
		t.Errorf("verdict: %+v", v)
	}
	if job["JobState"] != "COMPLETED" || job["Restarts"] != "1" || job["ExcNodeList"] != v.Host {
		t.Errorf("Slurm says: %s, %s restarts, without %s; want without %s", job["JobState"], job["Restarts"], job["ExcNodeList"], v.Host)
	}
}

// An agent is killed, so it cannot report anything. The others notice, and no workers stay.
func testSlurmAgentKilled(t *testing.T, c *cluster) {
	c.commandJob("lost", "nodes = 3", "2", "sh", "-c", `touch "running.$RANK"; exec sleep 1000`)
	s := c.submit("lost.toml", "--set", "requeue.on=[]", "--", "--nodelist=n[1-3]")
	eventually(t, commandLimit, "all 6 ranks run", func() bool {
		found, err := filepath.Glob(filepath.Join(c.dir, "running.*"))
		return err == nil && len(found) == 6
	})
	pids := strings.Fields(c.onNode("n2", "pgrep", "-f", "--", s.dir.Binary()+" run").stdout)
	if len(pids) != 1 {
		t.Fatalf("agents on n2: %q", pids)
	}
	c.ok(c.script, "exec", "n2", "kill", "-KILL", pids[0])
	if job := s.await(); job["JobState"] != "FAILED" {
		t.Errorf("Slurm says: %s, exit code %s", job["JobState"], job["ExitCode"])
	}
	if v := s.verdict(1); v.Cause != "node" || v.Host != "n2" || v.Exit == 0 {
		t.Errorf("verdict: %+v", v)
	}
	s.gone()
}

// submit --wait exits with the job's exit code.
func testSlurmWait(t *testing.T, c *cluster) {
	c.commandJob("wait", "nodes = 2", "1", "sh", "-c", `exit "$CODE"`)
	for _, row := range []struct {
		code  string
		exit  int
		slurm string
	}{{"0", 0, "0:0"}, {"3", 3, "3:0"}, {"100", 100, "100:0"}} {
		out := c.exits(row.exit, "ddpbatch", "submit", "wait.toml", "--wait", "--parsable", "--set", `setup.env.CODE="`+row.code+`"`)
		id := strings.TrimSpace(out.stdout)
		if job := c.job(id); job["ExitCode"] != row.slurm {
			t.Errorf("job %s, whose ranks exit with %s: Slurm says %s", id, row.code, job["ExitCode"])
		}
		if row.exit != 0 && !strings.Contains(out.stderr, "exited with code "+row.code) {
			t.Errorf("submit --wait does not say why: %v", out)
		}
	}
}

// logs -f shows a running job's output as it is written, and ends with the job.
func testSlurmFollow(t *testing.T, c *cluster) {
	c.commandJob("follow", "nodes = 1", "1", "sh", "-c", `echo first; until [ -e go ]; do sleep 0.05; done; echo last`)
	s := c.submit("follow.toml")
	follow := c.start("ddpbatch", "logs", "-f", s.id)
	eventually(t, commandLimit, "logs -f prints the first line", func() bool {
		return strings.Contains(follow.stdout.String(), "first\n")
	})
	if row := s.status(); row.State != "RUNNING" || row.Attempt != 1 {
		t.Errorf("status --json while the job runs: %+v", row)
	}
	if out := c.exits(exit.Usage, "ddpbatch", "resume", s.id); !strings.Contains(out.stderr, "RUNNING") {
		t.Errorf("resume while the job runs: %v", out)
	}
	if _, err := s.dir.Verdict(1); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("there is a verdict while the job runs (%v)", err)
	}
	watch := c.start("ddpbatch", "logs", "-f", s.id)
	eventually(t, commandLimit, "another logs -f prints the first line", func() bool {
		return strings.Contains(watch.stdout.String(), "first\n")
	})
	watch.signal(syscall.SIGINT)
	want := "job " + s.id + " keeps running\nwatch: ddpbatch logs -f " + s.id + "\ncancel: ddpbatch cancel " + s.id + "\n"
	if out := watch.end(commandLimit); out.code != exit.Interrupted || !strings.HasSuffix(out.stderr, want) {
		t.Errorf("logs -f that is interrupted: %v", out)
	}
	c.write("go", "")
	if out := follow.end(commandLimit); out.code != 0 || !strings.HasSuffix(out.stdout, "first\nlast\n") {
		t.Errorf("logs -f: %v", out)
	}
}
