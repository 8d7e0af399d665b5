package proc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// tick is the unit of times in /proc: USER_HZ is 100 on every platform that Go supports on Linux.
const tick = 10 * time.Millisecond

// PF_KTHREAD and PF_EXITING of the kernel's include/linux/sched.h, in a process's flags.
const (
	kernelThread = 0x00200000
	exiting      = 0x00000004
)

// stat holds what /proc/PID/stat says of a process (proc(5)). The kernel returns that even if the process's memory is locked.
type stat struct {
	pid, parent, group, threads int
	name                        string
	state                       byte
	kernel                      bool          // a kernel thread
	exiting                     bool          // its first thread has begun to end
	environ                     uint64        // address of its environment; 0 during execve(2), and if this user may not see it
	start                       uint64        // ticks since the machine started
	cpu                         time.Duration // its own, and that of its children that it has waited for
}

// zombie reports whether all threads of the process have ended.
func (s stat) zombie() bool { return (s.state == 'Z' || s.state == 'X') && s.threads <= 1 }

func readStat(pid int) (stat, error) {
	text, err := readSome(fmt.Sprintf("/proc/%d/stat", pid), 4096)
	if err != nil {
		return stat{}, err
	}
	return parseStat(text)
}

// parseStat parses one line. The name is in parentheses, and may contain any bytes, also parentheses and newlines.
func parseStat(text []byte) (stat, error) {
	bad := func() (stat, error) { return stat{}, fmt.Errorf("invalid line in /proc/PID/stat: %.80q", text) }
	open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if open < 1 || end < open {
		return bad()
	}
	s := stat{name: string(text[open+1 : end])}
	fields := bytes.Fields(text[end+1:]) // fields[i] has the number i+3 in proc(5)
	if len(fields) < 20 || len(fields[0]) != 1 {
		return bad()
	}
	s.state = fields[0][0]
	var err error
	number := func(field []byte) uint64 {
		n, parseErr := strconv.ParseInt(string(field), 10, 64)
		err = errors.Join(err, parseErr)
		return uint64(n)
	}
	s.pid = int(number(bytes.TrimSpace(text[:open])))
	s.parent, s.group = int(number(fields[1])), int(number(fields[2]))
	flags := number(fields[6])
	s.kernel, s.exiting = flags&kernelThread != 0, flags&exiting != 0
	for _, field := range fields[11:15] { // utime, stime, cutime, cstime
		s.cpu += time.Duration(number(field)) * tick
	}
	s.threads, s.start = int(number(fields[17])), number(fields[19])
	if len(fields) > 47 { // since Linux 3.5
		s.environ = number(fields[47])
	}
	if err != nil || s.pid < 1 {
		return bad()
	}
	return s, nil
}

// ownership holds what /proc/PID/status says and stat does not.
type ownership struct {
	process bool // the ID is that of a process and not of one of its other threads: /proc has files for both, but lists only the first
	own     bool // this user may signal it (kill(2)): its real or saved user is this process's real or effective one
}

// readOwnership reads the ownership of a process; both fields are false if it has ended.
func readOwnership(id int) ownership {
	text, err := readSome(fmt.Sprintf("/proc/%d/status", id), 4096)
	if err != nil {
		return ownership{}
	}
	o := ownership{process: true}
	for line := range bytes.Lines(text) {
		if group, ok := bytes.CutPrefix(line, []byte("Tgid:")); ok {
			o.process = string(bytes.TrimSpace(group)) == strconv.Itoa(id)
		}
		if users, ok := bytes.CutPrefix(line, []byte("Uid:")); ok {
			fields := bytes.Fields(users) // real, effective, saved, and file system user
			for i := 0; i < min(len(fields), 4); i += 2 {
				uid := string(fields[i])
				o.own = o.own || uid == strconv.Itoa(os.Getuid()) || uid == strconv.Itoa(os.Geteuid())
			}
		}
	}
	return o
}

// processIDs lists the processes that this process can see, in ascending order.
func processIDs() ([]int, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list the processes: %w", err)
	}
	var found []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil && pid > 0 {
			found = append(found, pid)
		}
	}
	slices.Sort(found)
	return found, nil
}

// stats returns the stat of every process. Processes that end meanwhile are left out.
func stats() ([]stat, error) {
	ids, err := processIDs()
	if err != nil {
		return nil, err
	}
	all := make([]stat, 0, len(ids))
	for _, pid := range ids {
		if s, err := readStat(pid); err == nil {
			all = append(all, s)
		}
	}
	return all, nil
}

// readSome reads at most limit bytes of a file.
func readSome(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}

const gonePoll = 10 * time.Millisecond // between checks of a context, and of processes without a pidfd

// handle refers to one process, and never to a later one with the same ID. Its owner must close it.
type handle struct {
	stat
	fd      int   // a pidfd; -1 if the kernel has none
	refused error // the error of the last signal
}

// pidStart identifies a process for as long as the machine runs.
type pidStart struct {
	pid   int
	start uint64
}

func (s stat) pidStart() pidStart { return pidStart{s.pid, s.start} }

func (h *handle) accepted() bool { return h.refused == nil }

// openHandle opens a process that has been examined. still examines it again once the handle is open; if it returns false, there is no
// handle.
func openHandle(s stat, still func(stat) bool) (*handle, bool) {
	fd, err := unix.PidfdOpen(s.pid, 0)
	switch {
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM): // before Linux 5.3; in containers that filter unknown system calls
		fd = -1
	case err != nil:
		return nil, false
	}
	h := &handle{stat: s, fd: fd}
	now, err := readStat(s.pid)
	if err != nil || now.pidStart() != s.pidStart() || !still(now) {
		h.close()
		return nil, false
	}
	h.stat = now
	return h, true
}

func (h *handle) close() {
	if h.fd >= 0 {
		unix.Close(h.fd)
		h.fd = -1
	}
}

// signal sends sig. It is not an error if the process has ended.
func (h *handle) signal(sig unix.Signal) error {
	var err error
	if h.fd >= 0 {
		err = unix.PidfdSendSignal(h.fd, sig, nil, 0)
	} else if !h.gone() {
		err = unix.Kill(h.pid, sig)
	}
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("send %v to process %d (%s): %w", sig, h.pid, h.name, err)
	}
	return nil
}

// gone reports whether the process has ended, even if its parent has not waited for it yet.
func (h *handle) gone() bool {
	s, err := readStat(h.pid)
	return err != nil || s.start != h.start || s.zombie()
}

// awaitGone waits until all processes have ended, ctx ends, or limit has passed. It returns those that have not ended.
func awaitGone(ctx context.Context, limit time.Duration, handles []*handle) []*handle {
	left := slices.Clone(handles)
	for end := time.Now().Add(limit); len(left) > 0; {
		left = slices.DeleteFunc(left, (*handle).gone)
		rest := min(gonePoll, time.Until(end))
		if len(left) == 0 || rest <= 0 || ctx.Err() != nil {
			break
		}
		var fds []unix.PollFd // of the first one that has not ended; the others are checked after it
		if left[0].fd >= 0 {
			fds = []unix.PollFd{{Fd: int32(left[0].fd), Events: unix.POLLIN}}
		}
		_, _ = unix.Poll(fds, int(max(1, rest.Milliseconds())))
	}
	return left
}

// Identity identifies one process among those of all machines, because process IDs are reused.
type Identity struct {
	Machine string `json:"machine"` // identifies the machine since its last start, and the namespace of the process ID; "" if not known
	PID     int    `json:"pid"`
	Start   uint64 `json:"start"` // when the process began, in ticks since the machine started
}

// Self returns the identity of this process.
func Self() (Identity, error) {
	machine, err := machineID()
	if err != nil {
		return Identity{}, err
	}
	own, err := readStat(os.Getpid())
	if err != nil {
		return Identity{}, fmt.Errorf("read the start time of this process: %w", err)
	}
	return Identity{Machine: machine, PID: own.pid, Start: own.start}, nil
}

// Lives reports whether the process still runs. known is false for a process of another machine or of another namespace of process IDs.
func (id Identity) Lives() (lives, known bool) {
	machine, err := machineID()
	if err != nil || machine != id.Machine || id.PID <= 0 {
		return false, false
	}
	if err := unix.Kill(id.PID, 0); errors.Is(err, unix.ESRCH) {
		return false, true
	}
	now, err := readStat(id.PID)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH): // it has ended just now, or is hidden (proc(5), hidepid)
		return !errors.Is(unix.Kill(id.PID, 0), unix.ESRCH), true
	case err != nil:
		return true, true
	}
	return now.start == id.Start && !now.zombie(), true
}

// machineID identifies this machine since its last start, and this process's namespace of process IDs.
func machineID() (string, error) {
	boot, err := readSome("/proc/sys/kernel/random/boot_id", 64)
	if err != nil {
		return "", fmt.Errorf("identify this machine: %w", err)
	}
	space, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return "", fmt.Errorf("identify this machine: %w", err)
	}
	return string(bytes.TrimSpace(boot)) + " " + space, nil
}
