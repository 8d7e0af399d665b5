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
	Folder   string // of runs, or the nearest one above it that is there
	Temp     string // folder for a temporary file
	Defaults error  // why the site's and the user's files of defaults cannot be used; nil: they can
	Now      func() time.Time
}

// askLimit is for one question to Slurm.
const askLimit = 10 * time.Second

// Check looks at all of it. Where Slurm is not there, or does not answer, that is the only finding about it.
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
		f.fail("defaults", "mend the file: no command reads a job before", "%v", l.Defaults)
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
		f.fail("slurm", "", "%v", err) // which says what to do
	case errors.Is(err, context.DeadlineExceeded):
		f.fail("slurm", "try again later, or ask the administrators whether it is down", "the controller has not answered for %v", askLimit)
	default:
		f.fail("slurm", "", "%v", err) // as above
	}
}

// oldest is the release of Slurm that ddpbatch is made for: this, and all after it.
const oldestYear, oldestMonth = 22, 5

func (f *findings) release(s slurm.Settings, took time.Duration) {
	version := s.Get("SLURM_VERSION")
	year, month := s.Release()
	switch {
	case year == 0:
		f.warn("slurm", "", "the controller does not tell its version (%s)", text.Quoted(version, 40))
	case year < oldestYear || year == oldestYear && month < oldestMonth:
		f.warn("slurm", "nobody has tried this: look at what jobs do", "%s, and ddpbatch is made for %d.%02d and later", version,
			oldestYear,
			oldestMonth)
	default:
		f.ok("slurm", "%s, cluster %s; the controller answered in %v", version, s.Get("ClusterName"), took.Round(time.Millisecond))
	}
}

const maxClockSkew = 10 * time.Second

// clock holds this machine's clock against the controller's: munge refuses credentials that seem to be old, or of the future.
func (f *findings) clock(controller, own time.Time) {
	skew := controller.Sub(own)
	switch {
	case controller.IsZero(): // it does not say
	case skew.Abs() > maxClockSkew:
		f.warn("clock", "ask the administrators to look after the time service of both", "the controller's clock is %v from this machine's",
			skew.Abs().Round(time.Second))
	default:
		f.ok("clock", "that of the controller and that of this machine agree to %v", maxClockSkew)
	}
}

// leastKillWait is Slurm's default.
const leastKillWait = 30 * time.Second

// settings judges those of slurm.conf on which it depends what becomes of a run.
func (f *findings) settings(s slurm.Settings) {
	f.killWait(s)
	f.requeue(s)
	if kind := strings.TrimPrefix(s.Get("ProctrackType"), "proctrack/"); kind == "cgroup" {
		f.ok("processes", "Slurm ends whatever a job has started (ProctrackType=proctrack/cgroup)")
	} else {
		f.warn("processes", "ddpbatch ends what it finds; an administrator can set ProctrackType=proctrack/cgroup",
			"Slurm may miss processes that have left their parents as it ends a job (ProctrackType=proctrack/%s)", kind)
	}
	if size := s.Get("MaxArraySize"); size == "0" {
		f.warn("arrays", "leave slurm.array and [sweep] out", "the cluster takes no arrays (MaxArraySize=0)")
	} else {
		f.ok("arrays", "a larger sweep is submitted as several arrays (MaxArraySize=%s)", size)
	}
	if kind := strings.TrimPrefix(s.Get("AccountingStorageType"), "accounting_storage/"); kind == "" || kind == "none" {
		f.warn("accounting", "`ddpbatch status` goes by what runs have written then",
			"there is none: Slurm forgets a job some time after its end (MinJobAge=%s)", s.Get("MinJobAge"))
	} else {
		f.ok("accounting", "%s", kind)
	}
	if program := s.Get("HealthCheckProgram"); program != "" && s.Get("HealthCheckInterval") != "0 sec" {
		f.ok("health", "Slurm runs %s on nodes every %s", program, s.Get("HealthCheckInterval"))
	} else {
		f.ok("health", "Slurm does not look after its nodes (no HealthCheckProgram); launch.check runs a program "+
			"of yours before each start")
	}
	f.limits(s)
}

func (f *findings) killWait(s slurm.Settings) {
	wait, err := s.KillWait()
	switch {
	case err != nil:
		f.warn("KillWait", "", "%v", err)
	case wait < leastKillWait:
		f.warn("KillWait", "what takes longer to save has to begin at the warning (requeue.lead), not at TERM",
			"Slurm kills a job %v after its TERM, of which the ranks have %v", wait, (wait * 2 / 3).Round(time.Second))
	default:
		f.ok("KillWait", "Slurm kills a job %v after its TERM, of which the ranks have %v, or launch.grace if that is less", wait,
			(wait * 2 / 3).Round(time.Second))
	}
}

// requeue: jobs ask for it themselves, so that JobRequeue=0, which is for those that do not, is no fault.
func (f *findings) requeue(s slurm.Settings) {
	switch mode := s.Get("PreemptMode"); {
	case strings.Contains(mode, "SUSPEND"):
		f.warn("preemption", "its connections and its deadline go on meanwhile; ask for a partition or QOS that is not preempted",
			"Slurm may suspend a job to make room for another (PreemptMode=%s)", mode)
	case mode == "OFF" || mode == "":
		f.ok("preemption", "jobs are not preempted by default (PreemptMode=OFF); partitions and QOS may have another mode")
	default:
		f.ok("preemption", "a preempted job saves and is started again (PreemptMode=%s, requeue.on)", mode)
	}
	f.ok("requeue", "jobs ask for it themselves (--requeue; JobRequeue=%s)", s.Get("JobRequeue"))
}

// Limits of this shell that jobs should not inherit.
const leastFiles = 4096

// limits: those of the shell that submits come along into its jobs unless the site has it otherwise (slurm.conf(5),
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
		f.ok("limits", "jobs have the nodes' own")
	case files.Max < leastFiles:
		f.warn("limits", "raise it here before you submit (ulimit -Hn), or submit with --propagate=NONE (slurm.propagate)",
			"those of this shell come along into jobs, and no more than %d open files are few for data loaders", files.Max)
	default:
		f.ok("limits", "those of this shell come along into jobs (PropagateResourceLimits), as %d open files", files.Max)
	}
}

// start tells how agents will find each other.
func (l Login) start(ctx context.Context, f *findings) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	plugins, err := l.Slurm.MPIPlugins(ctx)
	config, configErr := l.Slurm.ClusterConfig(ctx)
	ports := ""
	if configErr == nil && config.SrunPortRange != "" {
		ports = ", within Slurm's own (SrunPortRange=" + config.SrunPortRange + ") if those are 256 or more"
	}
	switch {
	case err != nil:
		f.warn("start", "", "%v", err)
	case slices.Contains(plugins, "pmi2"):
		f.ok("start", "agents tell each other through Slurm where they are (srun --mpi=pmi2)")
	default:
		f.ok("start", "agents meet on ports that the job's id decides%s, as srun knows no pmi2 here; launch.ports names others", ports)
	}
}

func (l Login) partition(ctx context.Context, f *findings) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	p, err := l.Slurm.Partition(ctx, "")
	switch {
	case errors.Is(err, slurm.ErrNoPartition):
		f.warn("partition", "name one: slurm.partition (\"sinfo -s\" lists them)", "jobs go to none by themselves")
	case err != nil:
		f.warn("partition", "", "%v", err)
	case p.State != "UP":
		f.warn("partition", "name another: slurm.partition (\"sinfo -s\" lists them)", "%s, where jobs go by themselves, is %s", p.Name,
			p.State)
	default:
		f.ok("partition", "%s, where jobs go by themselves: %s%s%s; at most %s", p.Name, text.Plural(max(0, p.Nodes), "node"),
			each(p.NodeCPUs, "core"), each(p.NodeGPUs, "GPU"), slurm.FormatTime(p.MaxTime))
	}
}

// each is what a node has at most; "" where that is nothing or not known.
func each(n int, what string) string {
	if n <= 0 {
		return ""
	}
	return ", up to " + text.Plural(n, what) + " each"
}

// testOnly asks Slurm whether it would take the smallest of jobs. What it would not take may want an option that the site asks for.
func (l Login) testOnly(ctx context.Context, f *findings) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	script, err := os.CreateTemp(l.Temp, "ddpbatch-doctor-*")
	if err != nil {
		f.warn("sbatch", "make room, or set TMPDIR", "no script can be written: %v", err)
		return
	}
	defer os.Remove(script.Name())
	_, err = script.WriteString("#!/bin/sh\n")
	if err = errors.Join(err, script.Close()); err != nil {
		f.warn("sbatch", "make room, or set TMPDIR", "no script can be written: %v", err)
		return
	}
	answer, err := l.Slurm.TestOnly(ctx, script.Name(), []string{"--nodes=1", "--time=1", "--output=/dev/null"})
	switch {
	case errors.Is(err, slurm.ErrRefused):
		f.warn("sbatch", "give jobs what the site wants (slurm.account, slurm.partition, ...), best in ~/.config/ddpbatch/config.toml",
			"a job of one node for a minute is not taken as it is: %v", err)
	case err != nil:
		f.warn("sbatch", "", "%v", err)
	default:
		f.ok("sbatch", "would take a job: %s", answer)
	}
}

const leastSpace = 1 << 30

// ofOneNode are file systems that no other machine sees.
var ofOneNode = map[string]bool{"tmpfs": true, "ramfs": true, "overlay": true}

// folder looks at the place of run directories: the ranks of all nodes read and write there.
func (l Login) folder(f *findings) {
	const check = "folder"
	file, err := os.CreateTemp(l.Folder, ".ddpbatch-doctor-*")
	if err != nil {
		f.fail(check, "set run_dir to a folder that all nodes share", "%s takes no run: %v", l.Folder, err)
		return
	}
	before := l.Now()
	_, err = file.WriteString("x")
	info, statErr := file.Stat()
	if err = errors.Join(err, statErr, file.Close(), os.Remove(file.Name())); err != nil {
		f.fail(check, "make room, or set run_dir to another folder that all nodes share", "%s takes no run: %v", l.Folder, err)
		return
	}
	space, err := vfs.OS{}.Space(l.Folder)
	skew := info.ModTime().Sub(before)
	switch {
	case err != nil:
		f.warn(check, "", "%v", err)
	case ofOneNode[space.Type]:
		f.warn(check, "set run_dir to a folder that all nodes share, unless they see this one",
			"%s is on %s, which is this machine's alone as a rule", l.Folder, space.Type)
	case space.Free < leastSpace:
		f.warn(check, "make room, or set run_dir to another folder that all nodes share", "%s has %s free", l.Folder,
			text.Bytes(space.Free))
	case skew.Abs() > maxClockSkew:
		f.warn(check, "ask the administrators to look after the time service of both",
			"the clock of the file server of %s is %v from this machine's", l.Folder, skew.Abs().Round(time.Second))
	default:
		f.ok(check, "%s takes runs: %s, %s free; all nodes must see it", l.Folder, space.Type, text.Bytes(space.Free))
	}
}

// Nearest is the folder at path, or where there is none yet the nearest one above it.
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
