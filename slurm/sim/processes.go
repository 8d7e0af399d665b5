package sim

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// process is one that belongs to the run, held by a descriptor (pidfd_open(2)): the signal of a fault must not hit
// another process that has got its number meanwhile.
type process struct {
	pid, parent int
	started     uint64 // in ticks since the machine's start
	fd          int
}

func (p process) signal(sig syscall.Signal) error {
	err := unix.PidfdSendSignal(p.fd, sig, nil, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil // it has ended by itself
	}
	return err
}

// processesWith opens the live processes of this machine whose environment, as they were started, has all of the given NAME=value
// pairs. closeAll releases them.
func processesWith(pairs ...string) []process {
	paths, _ := filepath.Glob("/proc/[0-9]*") // the pattern is good
	var found []process
	for _, path := range paths {
		pid, err := strconv.Atoi(filepath.Base(path))
		if err != nil || !hasEnviron(path, pairs) {
			continue
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue // gone
		}
		p := process{pid: pid, fd: fd}
		// The number may have changed hands before it was opened: look again.
		if !hasEnviron(path, pairs) || !p.readStat(path) {
			unix.Close(fd)
			continue
		}
		found = append(found, p)
	}
	return found
}

func closeAll(list []process) {
	for _, p := range list {
		unix.Close(p.fd)
	}
}

// hasEnviron tells whether the environment at path, in /proc, has all of the pairs. A zombie has none any more, and those of
// other users do not show theirs.
func hasEnviron(path string, pairs []string) bool {
	environ, err := os.ReadFile(filepath.Join(path, "environ"))
	if err != nil {
		return false
	}
	environ = append([]byte{0}, environ...)
	for _, pair := range pairs {
		if !bytes.Contains(environ, []byte("\x00"+pair+"\x00")) {
			return false
		}
	}
	return true
}

// readStat reads parent and start (proc_pid_stat(5)); the command's name, in brackets, may hold anything.
func (p *process) readStat(path string) bool {
	text, err := os.ReadFile(filepath.Join(path, "stat"))
	if err != nil {
		return false
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // from the third, the state, on
	if len(fields) < 20 {
		return false
	}
	var err1, err2 error
	p.parent, err1 = strconv.Atoi(fields[1])
	p.started, err2 = strconv.ParseUint(fields[19], 10, 64)
	return err1 == nil && err2 == nil
}

// worker finds the process of a rank, and leaves out what it has started itself, which has the same variables. Where there are several,
// one on a node that was cut off, say, the newest is meant. The caller closes it.
func worker(runDir string, rank int) (process, bool) {
	all := processesWith("DDPBATCH_RUN_DIR="+runDir, "RANK="+strconv.Itoa(rank))
	ours := map[int]bool{}
	for _, p := range all {
		ours[p.pid] = true
	}
	best := -1
	for i, p := range all {
		if ours[p.parent] {
			continue
		}
		// starts are counted in hundredths of a second, in which several may begin
		if best < 0 || p.started > all[best].started || p.started == all[best].started && p.pid > all[best].pid {
			best = i
		}
	}
	if best < 0 {
		return process{}, false
	}
	found := all[best]
	closeAll(append(all[:best], all[best+1:]...))
	return found, true
}

// killNode ends all processes of a run on a pretend node at once: they are stopped first, so that none of them hears of another's
// end and says so.
func killNode(runDir, node string) error {
	stopped := map[int]process{}
	defer func() {
		for _, p := range stopped {
			unix.Close(p.fd)
		}
	}()
	const rounds = 100 // each finds what the round before had begun to start
	for range rounds {
		more := false
		for _, p := range processesWith("DDPBATCH_RUN_DIR="+runDir, "SLURMD_NODENAME="+node) {
			if _, known := stopped[p.pid]; known {
				unix.Close(p.fd)
				continue
			}
			if err := p.signal(unix.SIGSTOP); err != nil {
				unix.Close(p.fd)
				return fmt.Errorf("stop process %d: %w", p.pid, err)
			}
			stopped[p.pid], more = p, true
		}
		if !more {
			break
		}
	}
	var errs []error
	for _, p := range stopped {
		errs = append(errs, p.signal(unix.SIGKILL))
	}
	return errors.Join(errs...)
}
