package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/pause"
)

const (
	sweepStep  = 100 * time.Millisecond // for killed processes to end, before the next look
	sweepPause = time.Millisecond       // for a process to finish execve(2)
	maxChase   = 100                    // rounds of one look
	maxNew     = 4096                   // new processes in one round
	maxUnsure  = 5                      // looks that found nothing but may have missed a process
)

// Victim is a process that a sweep tried to kill.
type Victim struct {
	PID  int
	Name string // the name of its command, as in ps(1)
}

func (v Victim) String() string { return fmt.Sprintf("%d (%s)", v.PID, v.Name) }

// Swept is the result of a sweep.
type Swept struct {
	Killed []Victim // processes that have ended
	Left   []Victim // processes that have not ended: the kernel holds them, or refused the signal
}

// SweepOrphans kills every process whose environment has the cookie. A process inherits it from the one that started it, unless it has
// cleared or overwritten its environment. SweepOrphans also kills every orphan that this process has adopted as a subreaper ([Subreaper]),
// whatever its environment, except those with another cookie and those that were descendants when this process became a subreaper. So when
// no worker is left, nothing that the workers have started is left either. The first process of a container adopts orphans that are not its
// own, and so uses only the cookie.
//
// It looks again until it finds none, since processes that are being killed may start more, or until ctx ends; Left then holds those known
// to be left. It never kills this process, an ancestor of it, or a process that has only another cookie, as in a run within this one. It
// ignores zombies, and the process in which rootless Podman keeps a user's namespaces. As root it also kills processes of other users, and
// does not wait for their end. An error means that it is not known whether any is left.
func SweepOrphans(ctx context.Context, cookie string) (Swept, error) {
	if err := checkCookie(cookie); err != nil {
		return Swept{}, err
	}
	return sweep(ctx, orphansOf(cookie))
}

// orphansOf returns the targets of [SweepOrphans].
func orphansOf(cookie string) targets {
	p := targetsOf(cookie)
	p.others = func(s stat, env environ) bool {
		return len(env.cookies) == 0 && !errors.Is(env.err, errLocked) && children.isOrphanOfWorker(s, unix.Getpid())
	}
	return p
}

// SweepAdopted kills every orphan that this process has adopted as a subreaper, as [SweepOrphans] does, but with any cookie. That includes
// orphans of a run within this one, and the guard of a killed agent, which may not have finished its work. Of a container with a monitor it
// kills the processes inside: the monitor then removes the container, and ends.
func SweepAdopted(ctx context.Context) (Swept, error) {
	p := targetsOf()
	p.others = func(s stat, env environ) bool {
		return s.name != monitorName && children.isOrphanOfWorker(s, unix.Getpid()) || (len(env.cookies) > 0 || isRuntime(s)) &&
			isMonitored(s)
	}
	return sweep(ctx, p)
}

// SweepMarked kills exactly the processes whose environment has mark, an entry NAME=value. Otherwise it works as [SweepOrphans] does.
func SweepMarked(ctx context.Context, mark string) (Swept, error) {
	name, value, ok := strings.Cut(mark, "=")
	if !ok || name == "" || value == "" || len(value) > 2*cookieBytes {
		return Swept{}, fmt.Errorf("sweep by the mark %.64q: it must be NAME=value with 1 to %d bytes of value", mark, 2*cookieBytes)
	}
	p := targetsOf(value)
	p.variable = name
	return sweep(ctx, p)
}

// isMonitored reports whether a process is a child of a container's monitor that this process has adopted. The child that runs in the
// container has a cookie. The process that removes the container has none, and must live. The runtime has none either; if its client is
// killed early, the runtime waits forever to execute the container's program.
func isMonitored(s stat) bool {
	monitor, err := readStat(s.parent)
	return err == nil && monitor.name == monitorName && children.isOrphanOfWorker(monitor, unix.Getpid())
}

// isRuntime reports whether a process runs the program that makes containers for Podman.
func isRuntime(s stat) bool {
	return s.name == "crun" || s.name == "runc" || strings.HasPrefix(s.name, "runc:[")
}

// monitorName is the name of Podman's monitor processes.
const monitorName = "conmon"

// sweeper kills its targets.
type sweeper struct {
	targets targets
	env     *environReader
	last    func() (int, bool)   // lastPID, except in tests
	spared  map[int]bool         // this process and its ancestors
	tried   map[pidStart]*handle // all processes that were found; their handles are closed
}

// sweep kills the targets until none is left or ctx ends.
func sweep(ctx context.Context, p targets) (Swept, error) {
	return newSweeper(p).run(ctx)
}

func newSweeper(p targets) *sweeper {
	return &sweeper{
		targets: p, env: newEnvironReader(p.variable), last: lastPID, spared: ancestors(),
		tried: map[pidStart]*handle{},
	}
}

// errUnsure means that a sweep may have missed a process.
var errUnsure = errors.New("look for processes: they start and end too fast, or the last process ID cannot be read " +
	"(/proc/loadavg): one may have been missed")

func (s *sweeper) run(ctx context.Context) (Swept, error) {
	defer s.env.close()
	for unsure := 0; ; {
		dying := s.dying() // read before the look: a process that ends during it leaves orphans that the look saw as another's children
		found, sure, err := s.look(ctx)
		if err != nil {
			return s.result(), err
		}
		if len(found) == 0 && sure {
			if found = dying; len(found) == 0 {
				break
			}
		}
		if len(found) == 0 {
			if unsure++; unsure > maxUnsure {
				return s.result(), errors.Join(errUnsure, s.env.unanswered())
			}
			pause.For(ctx, sweepPause)
			continue
		}
		unsure = 0
		left := awaitGone(ctx, sweepStep, found)
		closeAll(found)
		if len(left) > 0 && (ctx.Err() != nil || !slices.ContainsFunc(found, (*handle).accepted)) {
			break
		}
	}
	return s.result(), s.env.unanswered()
}

// dying returns the processes that were killed and have not ended. Their memory, and so their environment, may already be gone.
func (s *sweeper) dying() []*handle {
	var found []*handle
	for _, h := range s.tried {
		if h.accepted() && !h.gone() {
			found = append(found, h)
		}
	}
	return found
}

// look kills the targets that it finds, and returns them. sure is false if it may have missed one.
//
// A list of processes is out of date once it has been read: a process that ended meanwhile may have started another. So look also examines
// all process IDs given out since it began the list, until there are no new ones. It takes the youngest first, to catch a process that
// keeps replacing itself by its own child.
func (s *sweeper) look(ctx context.Context) (found []*handle, sure bool, err error) {
	last, numbered := s.last()
	ids, err := processIDs()
	if err != nil {
		return nil, false, fmt.Errorf("look for processes: %w", err)
	}
	slices.Reverse(ids)
	for range maxChase {
		var again []int
		for _, pid := range ids {
			if ctx.Err() != nil {
				closeAll(found)
				return nil, false, fmt.Errorf("look for processes: %w", context.Cause(ctx))
			}
			h, done := s.examine(pid)
			if h != nil {
				found = append(found, h)
			}
			if !done {
				again = append(again, pid)
			}
		}
		now, _ := s.last()
		if !numbered || now < last || now-last > maxNew { // the IDs began anew, or too many processes start
			return found, false, nil
		}
		if ids = again; len(ids) > 0 {
			pause.For(ctx, sweepPause)
		}
		for pid := last + 1; pid <= now; pid++ {
			ids = append(ids, pid)
		}
		if last = now; len(ids) == 0 {
			return found, true, nil
		}
		slices.Reverse(ids)
	}
	return found, false, nil
}

// examine kills a process that is a target. done is false if it must be examined again, because it was in execve(2).
func (s *sweeper) examine(pid int) (killed *handle, done bool) {
	p, err := readStat(pid)
	if err != nil || s.spared[pid] || p.kernel || p.zombie() {
		return nil, true
	}
	if h := s.tried[p.pidStart()]; h != nil && h.accepted() {
		return nil, true // see dying
	}
	env := s.environOf(p)
	if env.empty && env.err == nil {
		if inExecve(p) {
			return nil, false
		}
		env = s.environOf(p) // the address shows no execve(2) if addresses are not random and the program executes itself again
	}
	if !s.targets.matches(p, env) {
		return nil, true
	}
	is := readOwnership(pid)
	if !is.process || !is.own && os.Geteuid() != 0 { // a thread is killed with its process; for a signal its ID stands for the process
		return nil, true
	}
	h, ok := openHandle(p, s.recheck)
	if !ok {
		return nil, false
	}
	h.refused = h.signal(unix.SIGKILL)
	if !is.own { // as root, the kill suffices: what another user's process does then is not waited for
		h.close()
		return nil, true
	}
	s.tried[h.pidStart()] = h
	return h, true
}

// inExecve reports whether an empty environment was read during execve(2). Some processes have an empty environment, and so have those that
// are ending.
func inExecve(before stat) bool {
	now, err := readStat(before.pid)
	if err != nil || now.zombie() {
		return false
	}
	if now.exiting {
		return now.threads > 1 && !before.exiting // the other threads were not asked
	}
	return now.environ == 0 || now.environ != before.environ
}

// environOf reads the environment of a process only if a cookie is looked for, because a process may take long to return it.
func (s *sweeper) environOf(p stat) environ {
	if s.targets.cookies == nil {
		return environ{}
	}
	return s.env.of(p)
}

// recheck examines a process again, which may have begun execve(2) since.
func (s *sweeper) recheck(now stat) bool {
	env := s.environOf(now)
	return !now.zombie() && (env.empty || s.targets.matches(now, env))
}

func (s *sweeper) result() Swept {
	var r Swept
	for _, h := range s.tried {
		if v := (Victim{h.pid, h.name}); h.gone() {
			r.Killed = append(r.Killed, v)
		} else {
			r.Left = append(r.Left, v)
		}
	}
	byPID := func(a, b Victim) int { return a.PID - b.PID }
	slices.SortFunc(r.Killed, byPID)
	slices.SortFunc(r.Left, byPID)
	return r
}

// lastPID returns the ID of the last process or thread that was started (proc(5), /proc/loadavg).
func lastPID() (int, bool) {
	text, err := readSome("/proc/loadavg", 256)
	if err != nil {
		return 0, false
	}
	fields := strings.Fields(string(text))
	if len(fields) != 5 {
		return 0, false
	}
	pid, err := strconv.Atoi(fields[4])
	return pid, err == nil && pid > 0
}

// ancestors returns this process and its ancestors, as far as they are visible.
func ancestors() map[int]bool {
	found := map[int]bool{}
	for pid := unix.Getpid(); pid > 0 && !found[pid]; {
		found[pid] = true
		s, _ := readStat(pid) // the zero stat, without a parent, if it cannot be read
		pid = s.parent
	}
	return found
}

func closeAll(handles []*handle) {
	for _, h := range handles {
		h.close()
	}
}

// targets says which processes a sweep kills.
type targets struct {
	variable string                   // the variable that holds cookies
	cookies  map[string]bool          // nil: environments are not read
	others   func(stat, environ) bool // further targets; nil: none
}

// targetsOf returns the processes that have one of the cookies in their environment.
func targetsOf(cookies ...string) targets {
	p := targets{variable: CookieVariable, cookies: map[string]bool{}}
	for _, cookie := range cookies {
		p.cookies[cookie] = true
	}
	return p
}

// matches reports whether a process is a target.
func (p targets) matches(s stat, env environ) bool {
	if isPause(s) {
		return false
	}
	for _, cookie := range env.cookies {
		if p.cookies[cookie] {
			return true
		}
	}
	return p.others != nil && p.others(s, env)
}
