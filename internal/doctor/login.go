package doctor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/text"
	"ddpbatch/internal/vfs"
	"ddpbatch/slurm"
)

// Login is a machine from which jobs are submitted.
type Login struct {
	Slurm    *slurm.Client
	Folder   string // the folder of runs, or the nearest existing folder above it
	Temp     string // folder for a temporary file
	Defaults error  // why the site's and the user's files of defaults cannot be used; nil: they can
	Now      func() time.Time
}

// askLimit bounds one question to Slurm.
const askLimit = 10 * time.Second

// Check makes all checks. If Slurm is not installed or does not answer, that is the only finding about Slurm.
func (l Login) Check(ctx context.Context) []Finding {
	var f findings
	settings, took, err := l.settings(ctx)
	if err != nil {
		f.noSlurm(err)
	} else {
		f.release(settings, took)
		f.clock(settings.Answered(), l.Now())
		f.settings(settings)
		l.start(ctx, &f)
		l.partition(ctx, &f)
		l.testOnly(ctx, &f)
	}
	l.folder(&f)
	if l.Defaults != nil {
		f.fail("defaults", "correct the file: until then commands cannot read job files", "%v", l.Defaults)
	}
	return f
}

func (l Login) settings(ctx context.Context) (s slurm.Settings, took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	begun := time.Now()
	s, err = l.Slurm.Settings(ctx)
	return s, time.Since(begun), err
}

func (f *findings) noSlurm(err error) {
	switch {
	case errors.Is(err, slurm.ErrNoSlurm):
		f.fail("slurm", "", "%v", err) // the error says what to do
	case errors.Is(err, context.DeadlineExceeded):
		f.fail("slurm", "try again later, or ask the administrators whether it is down", "the controller has not answered for %v", askLimit)
	default:
		f.fail("slurm", "", "%v", err) // as above
	}
}

// oldestYear and oldestMonth are the oldest release of Slurm that ddpbatch supports.
const oldestYear, oldestMonth = 22, 5

func (f *findings) release(s slurm.Settings, took time.Duration) {
	version := s.Get("SLURM_VERSION")
	year, month := s.Release()
	switch {
	case year == 0:
		f.warn("slurm", "", "the controller does not report its version (%s)", text.Quoted(version, 40))
	case year < oldestYear || year == oldestYear && month < oldestMonth:
		f.warn("slurm", "this release is not tested: watch what jobs do", "%s, but ddpbatch is made for %d.%02d and later", version,
			oldestYear,
			oldestMonth)
	default:
		f.ok("slurm", "%s, cluster %s; the controller answered in %v", version, s.Get("ClusterName"), took.Round(time.Millisecond))
	}
}

const maxClockSkew = 10 * time.Second

// clock compares this machine's clock with the controller's: munge refuses credentials that seem to be old, or from the future.
func (f *findings) clock(controller, own time.Time) {
	skew := controller.Sub(own)
	switch {
	case controller.IsZero(): // unknown
	case skew.Abs() > maxClockSkew:
		f.warn("clock", "ask the administrators to check the time service of both",
			"the controller's clock and this machine's differ by %v", skew.Abs().Round(time.Second))
	default:
		f.ok("clock", "the controller's clock and this machine's agree within %v", maxClockSkew)
	}
}

// leastKillWait is Slurm's default.
const leastKillWait = 30 * time.Second

// settings checks the settings of slurm.conf that affect runs.
func (f *findings) settings(s slurm.Settings) {
	f.killWait(s)
	f.requeue(s)
	if kind := strings.TrimPrefix(s.Get("ProctrackType"), "proctrack/"); kind == "cgroup" {
		f.ok("processes", "Slurm ends all processes that a job has started (ProctrackType=proctrack/cgroup)")
	} else {
		f.warn("processes", "ddpbatch ends those that it finds; an administrator can set ProctrackType=proctrack/cgroup",
			"when Slurm ends a job, it may miss processes that have left their parents (ProctrackType=proctrack/%s)", kind)
	}
	if size := s.Get("MaxArraySize"); size == "0" {
		f.warn("arrays", "do not use slurm.array and [sweep]", "the cluster does not take arrays (MaxArraySize=0)")
	} else {
		f.ok("arrays", "a larger sweep is submitted as several arrays (MaxArraySize=%s)", size)
	}
	if kind := strings.TrimPrefix(s.Get("AccountingStorageType"), "accounting_storage/"); kind == "" || kind == "none" {
		f.warn("accounting", "after that `ddpbatch status` uses what runs have written",
			"the cluster has none: Slurm forgets a job some time after its end (MinJobAge=%s)", s.Get("MinJobAge"))
	} else {
		f.ok("accounting", "%s", kind)
	}
	if program := s.Get("HealthCheckProgram"); program != "" && s.Get("HealthCheckInterval") != "0 sec" {
		f.ok("health", "Slurm runs %s on nodes every %s", program, s.Get("HealthCheckInterval"))
	} else {
		f.ok("health", "Slurm does not check its nodes (no HealthCheckProgram); launch.check can run your own program "+
			"before each start")
	}
	f.limits(s)
}

func (f *findings) killWait(s slurm.Settings) {
	wait, err := s.KillWait()
	switch {
	case err != nil:
		f.warn("KillWait", "", "%v", err)
	case wait < leastKillWait:
		f.warn("KillWait", "a save that takes longer must begin at the warning (requeue.lead), not at TERM",
			"Slurm kills a job %v after TERM; of this time the ranks have %v", wait, (wait * 2 / 3).Round(time.Second))
	default:
		f.ok("KillWait", "Slurm kills a job %v after TERM; of this time the ranks have %v, or launch.grace if that is less", wait,
			(wait * 2 / 3).Round(time.Second))
	}
}

// requeue checks how Slurm preempts and requeues jobs. Jobs ask to be requeued themselves, so JobRequeue=0, the default for jobs that do
// not ask, is not a fault.
func (f *findings) requeue(s slurm.Settings) {
	switch mode := s.Get("PreemptMode"); {
	case strings.Contains(mode, "SUSPEND"):
		f.warn("preemption", "connections may time out and the deadline may pass meanwhile; use a partition or QOS that is not preempted",
			"Slurm may suspend a job to make room for another (PreemptMode=%s)", mode)
	case mode == "OFF" || mode == "":
		f.ok("preemption", "jobs are not preempted by default (PreemptMode=OFF); partitions and QOS may have another mode")
	default:
		f.ok("preemption", "a preempted job saves and is started again (PreemptMode=%s, requeue.on)", mode)
	}
	f.ok("requeue", "jobs ask for it themselves (--requeue; JobRequeue=%s)", s.Get("JobRequeue"))
}

// leastFiles is the limit of open files below which jobs should not inherit this shell's limit.
const leastFiles = 4096

// limits checks the limits of this shell, which jobs inherit unless the site has configured otherwise (slurm.conf(5),
// PropagateResourceLimits).
func (f *findings) limits(s slurm.Settings) {
	carried := func(name string) bool {
		all := s.Get("PropagateResourceLimits")
		for word := range strings.SplitSeq(s.Get("PropagateResourceLimitsExcept"), ",") {
			if word == name || word == "ALL" {
				return false
			}
		}
		return all == "" || all == "ALL" || strings.Contains(","+all+",", ","+name+",")
	}
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return
	}
	switch {
	case !carried("NOFILE"):
		f.ok("limits", "jobs have the nodes' limits")
	case files.Max < leastFiles:
		f.warn("limits", "raise it here before you submit (ulimit -Hn), or submit with --propagate=NONE (slurm.propagate)",
			"jobs inherit this shell's limits, and %d open files are few for data loaders", files.Max)
	default:
		f.ok("limits", "jobs inherit this shell's limits (PropagateResourceLimits), such as %d open files", files.Max)
	}
}

// start reports how agents will find each other.
func (l Login) start(ctx context.Context, f *findings) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	plugins, err := l.Slurm.MPIPlugins(ctx)
	config, configErr := l.Slurm.ClusterConfig(ctx)
	ports := ""
	if configErr == nil && config.SrunPortRange != "" {
		ports = ", within Slurm's range (SrunPortRange=" + config.SrunPortRange + ") if that has 256 or more"
	}
	switch {
	case err != nil:
		f.warn("start", "", "%v", err)
	case slices.Contains(plugins, "pmi2"):
		f.ok("start", "agents exchange their addresses through Slurm (srun --mpi=pmi2)")
	default:
		f.ok("start", "agents meet on ports computed from the job's id%s, as srun does not have pmi2 here; launch.ports sets others", ports)
	}
}

func (l Login) partition(ctx context.Context, f *findings) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	p, err := l.Slurm.Partition(ctx, "")
	switch {
	case errors.Is(err, slurm.ErrNoPartition):
		f.warn("partition", "set slurm.partition (\"sinfo -s\" lists the partitions)", "the cluster has no default partition")
	case err != nil:
		f.warn("partition", "", "%v", err)
	case p.State != "UP":
		f.warn("partition", "set slurm.partition to another one (\"sinfo -s\" lists them)", "the default partition, %s, is %s", p.Name,
			p.State)
	default:
		f.ok("partition", "the default is %s: %s%s%s; at most %s", p.Name, text.Plural(max(0, p.Nodes), "node"),
			each(p.NodeCPUs, "core"), each(p.NodeGPUs, "GPU"), slurm.FormatTime(p.MaxTime))
	}
}

// each says how many of something a node has at most. It returns "" if that is 0 or unknown.
func each(n int, what string) string {
	if n <= 0 {
		return ""
	}
	return ", up to " + text.Plural(n, what) + " each"
}

// testOnly asks Slurm whether it would accept a minimal job. If it would not, the site may require an option.
func (l Login) testOnly(ctx context.Context, f *findings) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	script, err := os.CreateTemp(l.Temp, "ddpbatch-doctor-*")
	if err != nil {
		f.warn("sbatch", "free some space, or set TMPDIR", "cannot write a script: %v", err)
		return
	}
	defer os.Remove(script.Name())
	_, err = script.WriteString("#!/bin/sh\n")
	if err = errors.Join(err, script.Close()); err != nil {
		f.warn("sbatch", "free some space, or set TMPDIR", "cannot write a script: %v", err)
		return
	}
	answer, err := l.Slurm.TestOnly(ctx, script.Name(), []string{"--nodes=1", "--time=1", "--output=/dev/null"})
	switch {
	case errors.Is(err, slurm.ErrRefused):
		f.warn("sbatch", "set what the site requires (slurm.account, slurm.partition, ...), best in ~/.config/ddpbatch/config.toml",
			"Slurm does not accept a job of one node for one minute without further options: %v", err)
	case err != nil:
		f.warn("sbatch", "", "%v", err)
	default:
		f.ok("sbatch", "Slurm would accept a job: %s", answer)
	}
}

const leastSpace = 1 << 30

// ofOneNode are the file systems that other machines do not see.
var ofOneNode = map[string]bool{"tmpfs": true, "ramfs": true, "overlay": true}

// folder checks the folder of run directories, in which the ranks of all nodes read and write.
func (l Login) folder(f *findings) {
	const check = "folder"
	file, err := os.CreateTemp(l.Folder, ".ddpbatch-doctor-*")
	if err != nil {
		f.fail(check, "set run_dir to a folder that all nodes share", "cannot write to %s: %v", l.Folder, err)
		return
	}
	before := l.Now()
	_, err = file.WriteString("x")
	info, statErr := file.Stat()
	if err = errors.Join(err, statErr, file.Close(), os.Remove(file.Name())); err != nil {
		f.fail(check, "free some space, or set run_dir to another folder that all nodes share", "cannot write to %s: %v", l.Folder, err)
		return
	}
	space, err := vfs.OS{}.Space(l.Folder)
	skew := info.ModTime().Sub(before)
	switch {
	case err != nil:
		f.warn(check, "", "%v", err)
	case ofOneNode[space.Type]:
		f.warn(check, "set run_dir to a folder that all nodes share, unless they see this one",
			"%s is on %s, which usually only this machine sees", l.Folder, space.Type)
	case space.Free < leastSpace:
		f.warn(check, "free some space, or set run_dir to another folder that all nodes share", "%s has only %s free", l.Folder,
			text.Bytes(space.Free))
	case skew.Abs() > maxClockSkew:
		f.warn(check, "ask the administrators to check the time service of both",
			"the clock of the file server of %s and this machine's differ by %v", l.Folder, skew.Abs().Round(time.Second))
	default:
		f.ok(check, "%s is writable: %s, %s free; all nodes must see it", l.Folder, space.Type, text.Bytes(space.Free))
	}
}

// Nearest returns path if it is a folder, or else the nearest existing folder above it.
func Nearest(path string) string {
	for {
		if vfs.IsDir(path) {
			return path
		}
		above := filepath.Dir(path)
		if above == path {
			return path
		}
		path = above
	}
}
