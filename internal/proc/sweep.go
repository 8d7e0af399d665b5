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
	sweepStep  = 100 * time.Millisecond // for those killed to end, before others are looked for
	sweepPause = time.Millisecond       // for a process to come out of execve(2)
	maxChase   = 100                    // rounds of one look
	maxNew     = 4096                   // processes that are new in one round
	maxUnsure  = 5                      // looks that found nothing, but may have missed something
)

// Victim is a process that was swept.
type Victim struct {
	PID  int
	Name string // its command's, as in ps(1)
}

func (v Victim) String() string { return fmt.Sprintf("%d (%s)", v.PID, v.Name) }

// Swept is what a sweep has done.
type Swept struct {
	Killed []Victim // they have ended
	Left   []Victim // they have not: the kernel holds them, or refused the signal
}

// SweepOrphans kills every process whose environment has the cookie: whatever was started by a process with it has inherited it, unless it
// has cleared or overwritten its environment. It also kills every orphan that this process has adopted as a subreaper ([Subreaper]),
// whatever its environment, except those with another cookie and those that were descendants when this process became a subreaper. So if no
// worker is left, nothing that the workers have started is left either. The first process of a container adopts orphans that are not its
// own, and goes by the cookie alone.
//
// It looks again until it finds none, since processes that are being killed may start more, or until ctx ends; Left then holds those known
// to be left. It never kills this process, an ancestor of it, or a process whose only cookie is another, as in a run within this one. It
// ignores zombies, and the process in which rootless Podman keeps a user's namespaces. As root it also kills processes of other users, and
// does not wait for their end. An error means that it is not known whether any is left.
func SweepOrphans(ctx context.Context, cookie string) (Swept, error) {
	if err := checkCookie(cookie); err != nil {
		return Swept{}, err
	}
	return sweep(ctx, orphansOf(cookie))
}

// orphansOf is whom [SweepOrphans] kills.
func orphansOf(cookie string) targets {
	p := targetsOf(cookie)
	p.others = func(s stat, env environ) bool {
		return len(env.cookies) == 0 && !errors.Is(env.err, errLocked) && children.isOrphanOfWorker(s, unix.Getpid())
	}
	return p
}

// SweepAdopted kills every orphan that this process has adopted as a subreaper, as [SweepOrphans] does, but whatever its cookie. That
// includes the orphans of a run within this one, and the guard of an agent that was killed, which may not have done its work yet. Of a
// container that has a monitor it kills what is inside: the monitor then removes the container, and ends.
func SweepAdopted(ctx context.Context) (Swept, error) {
	p := targetsOf()
	p.others = func(s stat, env environ) bool {
		return s.name != monitorName && children.isOrphanOfWorker(s, unix.Getpid()) || (len(env.cookies) > 0 || isRuntime(s)) &&
			isMonitored(s)
	}
	return sweep(ctx, p)
}

// SweepMarked kills every process whose environment has mark, an entry NAME=value, and no other. The rest is as in [SweepOrphans].
func SweepMarked(ctx context.Context, mark string) (Swept, error) {
	name, value, ok := strings.Cut(mark, "=")
	if !ok || name == "" || value == "" || len(value) > 2*cookieBytes {
		return Swept{}, fmt.Errorf("sweep by the mark %.64q: write it as NAME=value, with 1 to %d bytes of value", mark, 2*cookieBytes)
	}
	p := targetsOf(value)
	p.variable = name
	return sweep(ctx, p)
}

// isMonitored reports whether a process is a child of a container's monitor that this process has adopted. Such a child has a cookie if it
// is what runs in the container. The process that removes the container has none, and is to live. The runtime has none either: if its
// client is killed early, it waits for ever to execute what is to run in the container.
func isMonitored(s stat) bool {
	monitor, err := readStat(s.parent)
	return err == nil && monitor.name == monitorName && children.isOrphanOfWorker(monitor, unix.Getpid())
}

// isRuntime reports whether a process is of the program that makes containers for Podman.
func isRuntime(s stat) bool {
	return s.name == "crun" || s.name == "runc" || strings.HasPrefix(s.name, "runc:[")
}

// monitorName is that of Podman's monitors.
const monitorName = "conmon"

// sweeper kills its targets.
type sweeper struct {
	targets targets
	env     *environReader
	last    func() (int, bool)   // lastPID
	spared  map[int]bool         // this process and its ancestors
	tried   map[pidStart]*handle // all that were found; closed
}

// sweep kills its targets, until none is left or ctx ends.
func sweep(ctx context.Context, p targets) (Swept, error) {
	return newSweeper(p).run(ctx)
}

func newSweeper(p targets) *sweeper {
	return &sweeper{
		targets: p, env: newEnvironReader(p.variable), last: lastPID, spared: ancestors(),
		tried: map[pidStart]*handle{},
	}
}

// errUnsure is a sweep after which it cannot be told that none is left.
var errUnsure = errors.New("look for processes: they come and go too fast, or their last number cannot be read " +
	"(/proc/loadavg): one may have been missed")

func (s *sweeper) run(ctx context.Context) (Swept, error) {
	defer s.env.close()
	for unsure := 0; ; {
		dying := s.dying() // before the look: one that ends during it leaves orphans that were somebody's children when they were looked at
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

// dying are those that were killed and have not ended. Their memory may be gone, and their environment with it.
func (s *sweeper) dying() []*handle {
	var found []*handle
	for _, h := range s.tried {
		if h.accepted() && !h.gone() {
			found = append(found, h)
		}
	}
	return found
}

// look kills the targets that it finds, and returns it. sure is false where one may have been missed.
//
// A list of processes is old when it has been read: one that was to come may have been started by one that has ended since. So
// whatever is numbered after the list was begun is looked at as well, until there is nothing new. The youngest come first: one that
// goes on as its own child is not young for long.
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
		if !numbered || now < last || now-last > maxNew { // the numbers began anew; or very much happens
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

// examine kills a process that is a target. done is false where it should be looked at again, as it was in the midst of
// execve(2).
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
		env = s.environOf(p) // where addresses are not random, one that executes itself again begins at the same one
	}
	if !s.targets.matches(p, env) {
		return nil, true
	}
	is := readOwnership(pid)
	if !is.process || !is.own && os.Geteuid() != 0 { // a thread goes with its process; to a signal its number is the process's
		return nil, true
	}
	h, ok := openHandle(p, s.recheck)
	if !ok {
		return nil, false
	}
	h.refused = h.signal(unix.SIGKILL)
	if !is.own { // root's kill is enough: it is not waited for what another user's process does then
		h.close()
		return nil, true
	}
	s.tried[h.pidStart()] = h
	return h, true
}

// inExecve reports whether an empty environment is one that was read while execve(2) was at work. Some processes have none, and those that
// are ending.
func inExecve(before stat) bool {
	now, err := readStat(before.pid)
	if err != nil || now.zombie() {
		return false
	}
	if now.exiting {
		return now.threads > 1 && !before.exiting // its other threads were not asked
	}
	return now.environ == 0 || now.environ != before.environ
}

// environOf is not asked of anybody where no cookie is looked for: a process may be long in telling it.
func (s *sweeper) environOf(p stat) environ {
	if s.targets.cookies == nil {
		return environ{}
	}
	return s.env.of(p)
}

// recheck looks at a process again. It may have come to execve(2) since.
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

// lastPID is the number that the last process or thread got that was started (proc(5), /proc/loadavg).
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

// ancestors is this process and its ancestors, as far as they can be seen.
func ancestors() map[int]bool {
	found := map[int]bool{}
	for pid := unix.Getpid(); pid > 0 && !found[pid]; {
		found[pid] = true
		s, _ := readStat(pid) // of one that cannot be seen: no parent
		pid = s.parent
	}
	return found
}

func closeAll(handles []*handle) {
	for _, h := range handles {
		h.close()
	}
}

// targets is whom a sweep kills.
type targets struct {
	variable string                   // whose values the cookies are
	cookies  map[string]bool          // nil: no environment is looked at
	others   func(stat, environ) bool // beside those; nil: nobody
}

// targetsOf is whoever has one of the cookies in its environment.
func targetsOf(cookies ...string) targets {
	p := targets{variable: CookieVariable, cookies: map[string]bool{}}
	for _, cookie := range cookies {
		p.cookies[cookie] = true
	}
	return p
}

// matches tells whether a process is a target.
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
