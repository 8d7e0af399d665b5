package attempt

import (
	"io"
	"strconv"
	"strings"
	"time"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/jobenv"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/submission"
	"ddpbatch/slurm"
)

// Env describes the batch script around an attempt, and Slurm.
type Env struct {
	submission.Env
	Lookup  func(name string) (string, bool) // looks up a variable of the batch script's environment
	Environ []string                         // the whole environment, for the user's commands
	Err     io.Writer                        // the job's log, for a person
}

func (e Env) get(name string) string {
	value, _ := e.Lookup(name)
	return value
}

func (e Env) jobID() string { return jobenv.JobID(e.Lookup) }

// nodelist returns the job's nodes as a host list. A heterogeneous job has one variable for each component.
func (e Env) nodelist() string {
	var lists []string
	for i := range slurm.MaxHetSize {
		list := e.get("SLURM_JOB_NODELIST_HET_GROUP_" + strconv.Itoa(i))
		if list == "" {
			break
		}
		lists = append(lists, list)
	}
	if lists == nil {
		return e.get("SLURM_JOB_NODELIST")
	}
	return strings.Join(lists, ",")
}

// start returns how often Slurm has started the job again.
func (e Env) start() int {
	n, err := strconv.Atoi(e.get("SLURM_RESTART_COUNT")) // absent in a first start
	if err != nil {
		return 0
	}
	return max(0, n)
}

// Attempt is one claimed attempt of a run, with the secret of its ranks.
type Attempt struct {
	Env       Env
	Scheduler Scheduler // used at the attempt's end; nil before
	Run       *rundir.Dir
	Number    int
	JobID     string
	Link      Link     // the job's place in the run's chain; zero if the run has no chain
	Signals   []string // the signals that the batch script got; empty if nobody told it to end

	KillWait time.Duration // Slurm's, between TERM and KILL; 0: unknown
	Ports    string        // Slurm's SrunPortRange; "": unknown, or any
	Silent   bool          // no agent wrote a verdict
	secret   auth.Secret
	unread   bool // there is a verdict, but it cannot be read

	unstarted bool   // the job was told to end before srun was called
	failure   string // the failure of the setup, without what may be secret in it; "": none
}

// nodeCount returns how many nodes the job has, or, if Slurm's variables do not say, how many the run asks for.
func (e Env) nodeCount(run *rundir.Dir) int {
	n, err := strconv.Atoi(e.get("SLURM_JOB_NUM_NODES"))
	if err != nil || n < 1 || e.get("SLURM_HET_SIZE") != "" { // of a heterogeneous job it is that of the first component
		return run.Spec().Nodes
	}
	return n
}

// Claim claims the next attempt of run for the job jobID, which may be a link of a chain.
func Claim(e Env, run *rundir.Dir, jobID string, link Link) (*Attempt, error) {
	secret := auth.NewSecret()
	number, err := run.ClaimAttempt()
	if err != nil {
		return nil, err
	}
	err = run.Append(rundir.Event{
		Time: e.Now(), Event: rundir.EventBegin, Attempt: number, Job: jobID, Start: e.start(), Link: link.Number, Links: link.Of,
		NodeCount: e.nodeCount(run), Detail: "job " + jobID,
	})
	return &Attempt{Env: e, Run: run, Number: number, secret: secret, JobID: jobID, Link: link}, err
}

// Environ returns the variables that the attempt's agents read.
func (a *Attempt) Environ() []string {
	environ := []string{
		"DDPBATCH_RUN_DIR=" + a.Run.Path(),
		"DDPBATCH_ATTEMPT=" + strconv.Itoa(a.Number),
		"DDPBATCH_SECRET=" + a.secret.Hex(),
		"DDPBATCH_STOP_FILE=" + a.Run.StopPath(a.Number),
	}
	if a.KillWait > 0 {
		environ = append(environ, killWaitName+"="+a.KillWait.String())
	}
	if a.Ports != "" {
		environ = append(environ, jobenv.PortsVariable+"="+a.Ports)
	}
	return environ
}
