package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestSlurm runs the program on a real Slurm cluster, as a user does: jobs are submitted, watched,
// cancelled, killed and resumed, and what the program says is held against what Slurm says and
// what the tasks themselves saw. scripts/test brings the cluster up; the tests may share it with others.
func TestSlurm(t *testing.T) {
	script := clusterScript(t)
	if os.Getenv("SLURM_CONF") == "" {
		t.Fatalf(`DDPBATCH_TEST_SLURM is set and SLURM_CONF is not: eval "$(%s env)"`, script)
	}
	// They need two whole nodes, so that they would wait for all others.
	runAtOnce(t, script, 1, []clusterTest{{"RequeuePreempted", testSlurmRequeuePreempted}, {"PreemptedGivenUp", testSlurmPreemptedGivenUp}})
	// Most wait for Slurm most of the time.
	runAtOnce(t, script, clusterLanes(t, 4), []clusterTest{
		{"MeetNot", testSlurmMeetNot},
		{"Decline", testSlurmDecline},
		{"RequeueWarned", testSlurmRequeueWarned},
		{"RequeueNode", testSlurmRequeueNode},
		{"RequeueTimeLimit", testSlurmRequeueTimeLimit},
		{"RequeueStubborn", testSlurmRequeueStubborn},
		{"RequeueElement", testSlurmRequeueElement},
		{"RequeueRefused", testSlurmRequeueRefused},
		{"Env", testSlurmEnv},
		{"EnvArbitrary", testSlurmEnvArbitrary},
		{"EnvSteps", testSlurmEnvSteps},
		{"EnvFormats", testSlurmEnvFormats},
		{"Run", testSlurmRun},
		{"Cores", testSlurmCores},
		{"Meet", testSlurmMeet},
		{"RunByHand", testSlurmRunByHand},
		{"RunByHandSecret", testSlurmRunByHandSecret},
		{"Refused", testSlurmRefused},
		{"TestOnly", testSlurmTestOnly},
		{"Singleton", testSlurmSingleton},
		{"Crash", testSlurmCrash},
		{"AgentKilled", testSlurmAgentKilled},
		{"LostAgentLives", testSlurmLostAgentLives},
		{"CancelIsFinal", testSlurmCancelIsFinal},
		{"CancelEnded", testSlurmCancelEnded},
		{"Forbidden", testSlurmForbidden},
		{"Wait", testSlurmWait},
		{"SubmitKilled", testSlurmSubmitKilled},
		{"Follow", testSlurmFollow},
		{"Array", testSlurmArray},
		{"ArrayFailure", testSlurmArrayFailure},
		{"ArrayFollow", testSlurmArrayFollow},
		{"Quoting", testSlurmQuoting},
		{"Nested", testSlurmNested},
		{"JobsShareNodes", testSlurmJobsShareNodes},
		{"ElementsShareNodes", testSlurmElementsShareNodes},
		{"StepsShareNodes", testSlurmStepsShareNodes},
		{"Uneven", testSlurmUneven},
		{"Heterogeneous", testSlurmHeterogeneous},
		{"Arbitrary", testSlurmArbitrary},
		{"BadCommands", testSlurmBadCommands},
		{"LeavesEarly", testSlurmLeavesEarly},
		{"OtherSecret", testSlurmOtherSecret},
		{"TooFewGPUs", testSlurmTooFewGPUs},
		{"NotShared", testSlurmNotShared},
		{"NoProgram", testSlurmNoProgram},
		{"FullDisk", testSlurmFullDisk},
		{"ReadOnly", testSlurmReadOnly},
	})
	// They fill the cores of a small machine, and some of the others count seconds.
	runAtOnce(t, script, clusterLanes(t, 2), []clusterTest{
		{"Resume", testSlurmResume},
		{"Train", testSlurmTrain},
		{"TrainInTasks", testSlurmTrainInTasks},
		{"TorchTrain", testSlurmTorchTrain},
		{"TorchRestart", testSlurmTorchRestart},
		{"TorchRequeue", testSlurmTorchRequeue},
		{"TorchRaises", testSlurmTorchRaises},
	})
}

// clusterScript is scripts/slurm-cluster, or skips the test.
func clusterScript(t *testing.T) string {
	t.Helper()
	script := os.Getenv("DDPBATCH_TEST_SLURM")
	if script == "" {
		t.Skip("needs a Slurm cluster: scripts/test has one where it can, and sets DDPBATCH_TEST_SLURM")
	}
	return script
}

// clusterLanes is how many tests, up to most, the cluster's nodes have CPUs for at once: some have several jobs that must run at the same
// time, and would wait for each other.
func clusterLanes(t *testing.T, most int) int {
	t.Helper()
	out, err := exec.Command("sinfo", "-h", "-p", "main", "-o", "%c").Output()
	if err != nil {
		t.Fatalf("sinfo: %v", err)
	}
	cpus, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatalf("sinfo says that nodes have %q CPUs", out)
	}
	const each = 4 // on a node, at most
	return max(1, min(most, cpus/each))
}

// clusterTest is a test on a cluster, in a corner of its own.
type clusterTest struct {
	name string
	run  func(*testing.T, *cluster)
}

// runAtOnce runs tests in so many lanes, each of which takes the next test that is left. It is not t.Parallel, which counts cores: most
// of the tests wait for Slurm most of the time.
func runAtOnce(t *testing.T, script string, lanes int, tests []clusterTest) {
	t.Helper()
	left := make(chan clusterTest, len(tests))
	for _, test := range tests {
		left <- test
	}
	close(left)
	var all sync.WaitGroup
	for range lanes {
		all.Go(func() {
			for test := range left {
				t.Run(test.name, func(t *testing.T) { test.run(t, newCluster(t, script)) })
			}
		})
	}
	all.Wait()
}

// clusterNodes are in Slurm's order.
var clusterNodes = []string{"n1", "n2", "n3", "n4"}

// cluster is one test's corner of the cluster: a folder that commands run in, and a home of its own. What the test leaves running is
// cancelled at its end, and nothing of it may live on then: the nodes are on this machine, which sees their processes.
type cluster struct {
	t      *testing.T
	script string // scripts/slurm-cluster
	dir    string
	home   string
	env    []string // of its commands, as NAME=value, beside this process's own
}

func newCluster(t *testing.T, script string) *cluster {
	c := &cluster{t: t, script: script, dir: t.TempDir(), home: t.TempDir()}
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

// jobs lists this test's jobs that match squeue's arguments: id, state, reason, folder. Other
// people's are told apart by the folder they run in.
func (c *cluster) jobs(args ...string) (jobs [][]string) {
	const separator = "\x1f"
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	defer cancel()
	format := strings.Join([]string{"%i", "%A", "%T", "%r", "%Z"}, separator)
	out, err := exec.CommandContext(ctx, "squeue", append([]string{"-h", "-o", format}, args...)...).Output()
	if err != nil {
		c.t.Errorf("squeue: %v", err)
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), separator)
		if len(fields) == 5 && strings.HasPrefix(fields[4], c.dir) {
			jobs = append(jobs, fields)
		}
	}
	return jobs
}

// cancelJobs ends what is left of the test's jobs, and waits for it: their processes write
// into folders that are about to be removed.
func (c *cluster) cancelJobs() {
	for _, job := range c.jobs() {
		if err := exec.Command("scancel", job[1]).Run(); err != nil {
			c.t.Errorf("scancel %s: %v", job[1], err)
		}
	}
	eventually(c.t, time.Minute, "all jobs of the test are gone", func() bool { return len(c.jobs()) == 0 })
}

// explain prints, for a test that failed, what its jobs left behind.
func (c *cluster) explain() {
	if !c.t.Failed() {
		return
	}
	for _, job := range c.jobs("-t", "all") {
		c.t.Logf("job %s", strings.Join(job, " | "))
	}
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

// job is what Slurm itself says of a job: the fields of scontrol show job. A controller that does not answer in time is asked again.
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

// release is Slurm's, as "25.11.7".
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
		// text is a pattern to pgrep, in which a dot stands for itself too; 1 means that there is none
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

// atBest does something up to three times, until it takes no longer than limit: what runs beside a test can only make it longer.
func atBest(t *testing.T, limit time.Duration, what string, do func() time.Duration) {
	t.Helper()
	for tries := 1; ; tries++ {
		took := do()
		if took <= limit {
			return
		}
		if t.Failed() || tries == 3 {
			t.Errorf("%s: it took %v, and no less before", what, took)
			return
		}
	}
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
