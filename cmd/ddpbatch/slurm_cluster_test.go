package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestSlurm runs the program on real Slurm clusters, as a user does: it submits, watches, cancels, kills and resumes jobs, and compares
// what the program prints with what Slurm reports and with what the tasks saw. Most of the tests spend most of their time waiting for
// Slurm, so they run on several clusters at once, and several on one cluster if it has room.
func TestSlurm(t *testing.T) {
	sites := startSites(t)
	var all sync.WaitGroup
	all.Go(func() { runRows(t, sites.usual, usualRows) })
	all.Go(func() { runRows(t, lanes(sites.wide, 2), wideRows) })
	all.Go(func() { runRows(t, lanes(sites.faults, 3), killRows) })
	all.Go(func() { runRows(t, lanes(sites.faults, len(faultRows)), faultRows) })
	if sites.accounted != nil {
		all.Go(func() {
			t.Run("accounted", func(t *testing.T) { runRows(t, []*site{sites.accounted}, accountedRows) })
		})
	}
	all.Wait()
}

// usualRows each use a cluster of four nodes alone. If possible, a node binds tasks to the cores of this machine.
var usualRows = []row{
	{"RequeuePreempted", testSlurmRequeuePreempted},
	{"PreemptedGivenUp", testSlurmPreemptedGivenUp},
	{"RendezvousTimesOut", testSlurmRendezvousTimesOut},
	{"AgentCannotTakePart", testSlurmAgentCannotTakePart},
	{"RequeueWarned", testSlurmRequeueWarned},
	{"WarnedWhenDue", testSlurmWarnedWhenDue},
	{"RequeueNode", testSlurmRequeueNode},
	{"RequeueDrained", testSlurmRequeueDrained},
	{"CheckFails", testSlurmCheckFails},
	{"Doctor", testSlurmDoctor},
	{"RequeueTimeLimit", testSlurmRequeueTimeLimit},
	{"NodeRange", testSlurmNodeRange},
	{"RequeueStubborn", testSlurmRequeueStubborn},
	{"RequeueElement", testSlurmRequeueElement},
	{"RequeueRefused", testSlurmRequeueRefused},
	{"Chain", testSlurmChain},
	{"ChainCancelled", testSlurmChainCancelled},
	{"EnvArbitrary", testSlurmEnvArbitrary},
	{"EnvSteps", testSlurmEnvSteps},
	{"EnvFormats", testSlurmEnvFormats},
	{"Run", testSlurmRun},
	{"RunByHand", testSlurmRunByHand},
	{"RunByHandSecret", testSlurmRunByHandSecret},
	{"Refused", testSlurmRefused},
	{"TestOnly", testSlurmTestOnly},
	{"Singleton", testSlurmSingleton},
	{"Crash", testSlurmCrash},
	{"FaultyGPU", testSlurmFaultyGPU},
	{"AgentKilled", testSlurmAgentKilled},
	{"AgentKilledOfMany", testSlurmAgentKilledOfMany},
	{"TreeKilled", testSlurmTreeKilled},
	{"SrunKilled", testSlurmSrunKilled},
	{"LostAgentLives", testSlurmLostAgentLives},
	{"CancelIsFinal", testSlurmCancelIsFinal},
	{"CancelEnded", testSlurmCancelEnded},
	{"Forbidden", testSlurmForbidden},
	{"Exec", testSlurmExec},
	{"Wait", testSlurmWait},
	{"SubmitKilled", testSlurmSubmitKilled},
	{"Follow", testSlurmFollow},
	{"Array", testSlurmArray},
	{"ArrayFailure", testSlurmArrayFailure},
	{"ArrayFollow", testSlurmArrayFollow},
	{"Sweep", testSlurmSweep},
	{"SweepLarge", testSlurmSweepLarge},
	{"Quoting", testSlurmQuoting},
	{"Nested", testSlurmNested},
	{"StepsShareNodes", testSlurmStepsShareNodes},
	{"Uneven", testSlurmUneven},
	{"Heterogeneous", testSlurmHeterogeneous},
	{"HetJob", testSlurmHetJob},
	{"Arbitrary", testSlurmArbitrary},
	{"BadCommands", testSlurmBadCommands},
	{"LeavesEarly", testSlurmLeavesEarly},
	{"OtherSecret", testSlurmOtherSecret},
	{"TooFewGPUs", testSlurmTooFewGPUs},
	{"NotShared", testSlurmNotShared},
	{"NoProgram", testSlurmNoProgram},
	{"FullDisk", testSlurmFullDisk},
	{"ReadOnly", testSlurmReadOnly},
	{"CoresOfRanks", testSlurmCoresOfRanks},
	{"DevicesOfRanks", testSlurmDevicesOfRanks},
	{"MemoryOfRanks", testSlurmMemoryOfRanks},
	{"SessionsOfRanks", testSlurmSessionsOfRanks},
	{"Resume", testSlurmResume},
	{"Code", testSlurmCode},
	{"Container", testSlurmContainer},
	{"Train", testSlurmTrain},
	{"TrainInTasks", testSlurmTrainInTasks},
	{"TorchRestart", testSlurmTorchRestart},
	{"TorchRequeue", testSlurmTorchRequeue},
	{"TorchRaises", testSlurmTorchRaises},
}

// wideRows need more cores on a node than a small machine has.
var wideRows = []row{
	{"Env", testSlurmEnv},
	{"Cores", testSlurmCores},
	{"Rendezvous", testSlurmRendezvous},
	{"JobsShareNodes", testSlurmJobsShareNodes},
	{"ElementsShareNodes", testSlurmElementsShareNodes},
	{"TorchTrain", testSlurmTorchTrain},
}

// clusterNodes are in Slurm's order. A site may have more.
var clusterNodes = []string{"n1", "n2", "n3", "n4"}

// cluster is the part of a cluster that one test uses: a folder in which commands run, and a home folder. At the end of the test, the jobs
// that still run are canceled, and none of their processes may live on: the nodes are on this machine, which sees their processes.
type cluster struct {
	*site
	t    *testing.T
	dir  string
	home string
	env  []string // of its commands, as NAME=value, in addition to those of this process and of the site
}

func newCluster(t *testing.T, on *site) *cluster {
	c := &cluster{site: on, t: t, dir: t.TempDir(), home: t.TempDir()}
	c.env = []string{"HOME=" + c.home}
	t.Cleanup(func() { noSurvivors(t, c.dir, c.home) })
	t.Cleanup(c.cancelJobs)
	t.Cleanup(c.explain)
	return c
}

// write puts a file into the test's folder and returns its path.
func (c *cluster) write(name, text string) string {
	c.t.Helper()
	path := filepath.Join(c.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		c.t.Fatal(err)
	}
	return path
}

// jobs lists this test's jobs that match squeue's arguments: id, state, reason, folder. The folder in which a job runs distinguishes them
// from other jobs.
func (c *cluster) jobs(args ...string) (jobs [][]string) {
	const separator = "\x1f"
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	defer cancel()
	format := strings.Join([]string{"%i", "%A", "%T", "%r", "%Z"}, separator)
	var out []byte
	eventually(c.t, commandLimit, "squeue answers", func() bool {
		var err error
		out, err = c.command(ctx, "squeue", append([]string{"-h", "-o", format}, args...)...).Output()
		failed, _ := errors.AsType[*exec.ExitError](err)
		if busy := failed != nil && strings.Contains(string(failed.Stderr), "timed out"); busy {
			return false
		}
		if err != nil {
			c.t.Errorf("squeue: %v", err)
		}
		return true
	})
	for line := range strings.Lines(string(out)) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), separator)
		if len(fields) == 5 && strings.HasPrefix(fields[4], c.dir) {
			jobs = append(jobs, fields)
		}
	}
	return jobs
}

// cancelJobs cancels the jobs of the test that are left, and waits until they have ended: their processes write into folders that are about
// to be removed.
func (c *cluster) cancelJobs() {
	for _, job := range c.jobs() {
		if err := c.command(context.Background(), "scancel", job[1]).Run(); err != nil {
			c.t.Errorf("scancel %s: %v", job[1], err)
		}
	}
	eventually(c.t, commandLimit, "all jobs of the test are gone", func() bool { return len(c.jobs()) == 0 })
}

// explain prints the jobs, logs and records of a failed test.
func (c *cluster) explain() {
	if !c.t.Failed() {
		return
	}
	for _, job := range c.jobs("-t", "all") {
		c.t.Logf("job %s", strings.Join(job, " | "))
	}
	c.t.Logf("nodes, their states, and why: %v", c.run("sinfo", "-h", "-N", "-o", "%N %t %E"))
	err := filepath.WalkDir(c.dir, func(path string, _ os.DirEntry, err error) error {
		name := filepath.Base(path)
		wanted := strings.HasPrefix(name, "slurm-") || strings.HasSuffix(name, ".err")
		if err != nil || !wanted && !slices.Contains([]string{"verdict.json", "script.sh", "ledger.jsonl"}, name) {
			return err
		}
		if text, err := os.ReadFile(path); err == nil && len(text) > 0 {
			const most = 4 << 10
			c.t.Logf("%s:\n%s", path, text[max(0, len(text)-most):])
		}
		return nil
	})
	if err != nil {
		c.t.Log(err)
	}
}

// job returns what Slurm itself reports about a job: the fields of scontrol show job. If the controller does not answer in time, job asks
// again.
func (c *cluster) job(id string) map[string]string {
	c.t.Helper()
	var out output
	eventually(c.t, commandLimit, "scontrol shows job "+id, func() bool {
		out = c.run("scontrol", "show", "job", "-o", id)
		if out.code != 0 && !strings.Contains(out.stderr, "timed out") {
			c.t.Fatalf("scontrol show job %s: exit code %d: %s", id, out.code, out.stderr)
		}
		return out.code == 0
	})
	fields := map[string]string{}
	for _, word := range strings.Fields(out.stdout) {
		name, value, _ := strings.Cut(word, "=")
		if _, there := fields[name]; !there {
			fields[name] = value
		}
	}
	return fields
}

// release returns Slurm's release, such as "25.11.7".
func (c *cluster) release() string {
	c.t.Helper()
	words := strings.Fields(c.ok("srun", "-V").stdout) // "slurm 25.11.7", and Debian's "slurm-wlm 22.05.8"
	return words[len(words)-1]
}

// onNode runs a command on a node, outside of any job.
func (c *cluster) onNode(node string, args ...string) output {
	c.t.Helper()
	return c.run(c.script, append([]string{"exec", node}, args...)...)
}

// processes lists the processes on all nodes whose command line holds text, as "node pid".
func (c *cluster) processes(text string) (found []string) {
	c.t.Helper()
	for _, node := range clusterNodes {
		// text is a pattern for pgrep, in which a dot also matches itself; exit code 1 means that no process matches
		out := c.onNode(node, "pgrep", "-f", "--", text)
		if out.code > 1 {
			c.t.Fatalf("pgrep on %s: %v", node, out)
		}
		for _, pid := range strings.Fields(out.stdout) {
			found = append(found, node+" "+pid)
		}
	}
	return found
}

// eventually waits until done is true.
func eventually(t *testing.T, limit time.Duration, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(limit)
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for !done() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", limit, what)
		}
		<-ticker.C
	}
}
