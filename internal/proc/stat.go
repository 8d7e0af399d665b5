package proc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"
)

// tick is the unit of times in /proc: USER_HZ is 100 wherever Go runs on Linux.
const tick = 10 * time.Millisecond

// kernelThread is PF_KTHREAD of the kernel's include/linux/sched.h, in a process's flags.
const kernelThread = 0x00200000

// stat is what /proc/PID/stat says of a process (proc(5)). The kernel answers it even where the process's memory
// is locked.
type stat struct {
	pid, parent, group, threads int
	name                        string
	state                       byte
	kernel                      bool          // a thread of the kernel's own
	start                       uint64        // ticks since the machine started
	cpu                         time.Duration // of it, and of its children that it has waited for
}

// zombie tells whether the process has ended, all threads of it.
func (s stat) zombie() bool { return (s.state == 'Z' || s.state == 'X') && s.threads <= 1 }

func readStat(pid int) (stat, error) {
	text, err := readSome(fmt.Sprintf("/proc/%d/stat", pid), 4096)
	if err != nil {
		return stat{}, err
	}
	return parseStat(text)
}

// parseStat reads one line. The name stands in parentheses and may hold anything, parentheses and ends of lines too.
func parseStat(text []byte) (stat, error) {
	bad := func() (stat, error) { return stat{}, fmt.Errorf("%.80q is no line of /proc/PID/stat", text) }
	open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if open < 1 || end < open {
		return bad()
	}
	s := stat{name: string(text[open+1 : end])}
	fields := bytes.Fields(text[end+1:]) // fields[i] is the one that proc(5) numbers i+3
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
	s.kernel = number(fields[6])&kernelThread != 0
	for _, field := range fields[11:15] { // utime, stime, cutime, cstime
		s.cpu += time.Duration(number(field)) * tick
	}
	s.threads, s.start = int(number(fields[17])), number(fields[19])
	if err != nil || s.pid < 1 {
		return bad()
	}
	return s, nil
}

// ownership is what /proc/PID/status says beyond stat.
type ownership struct {
	process bool // the number is a process's, and not that of another of its threads: /proc has files for both, and lists the first alone
	own     bool // it may be signalled as this user's (kill(2)): its real or its saved user is this process's real or effective one
}

// readOwnership reads it; of one that is gone it is neither.
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
			fields := bytes.Fields(users) // real, effective, saved, and that for files
			for i := 0; i < min(len(fields), 4); i += 2 {
				uid := string(fields[i])
				o.own = o.own || uid == strconv.Itoa(os.Getuid()) || uid == strconv.Itoa(os.Geteuid())
			}
		}
	}
	return o
}

// processIDs lists the processes that this one can see, in ascending order.
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

// stats are those of all processes. One that ended meanwhile is left out.
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

// readSome reads a file's first limit bytes.
func readSome(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}
