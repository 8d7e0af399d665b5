package launch

import (
	"io"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/proc"
)

// worker is one process of the run. It leads a process group of its own, which
// ends with it.
type worker struct {
	place     Place
	cmd       *exec.Cmd
	cores     *unix.CPUSet // that it is bound to; nil: all
	process   *proc.Process
	out, errs *stream

	exit   int // its code; 0 where a signal killed it
	signal syscall.Signal
}

// start starts the process; ended is called once, from another goroutine, when
// it is over and its exit and signal are set.
func (w *worker) start(ended func(*worker)) error {
	w.cmd.Stdout, w.cmd.Stderr = w.out.w, w.errs.w
	process, err := proc.StartOn(w.cores, w.cmd)
	if err != nil {
		w.out.drop()
		w.errs.drop()
		return err
	}
	w.process = process
	w.out.begin()
	w.errs.begin()
	go func() {
		<-process.Done()
		w.out.end()
		w.errs.end()
		w.exit, w.signal = process.End()
		ended(w)
	}()
	return nil
}

// send signals the worker's process group, unless the worker is over.
func (w *worker) send(sig syscall.Signal) {
	_ = w.process.Signal(sig) // the signals are valid, and the group is ours or gone
}

// newWorker makes a worker ready to start.
func newWorker(c AgentConfig, m *meeting, p Place, path string, out, errs io.Writer) (*worker, error) {
	w := &worker{place: p, cores: c.coresOf(p)}
	var outPath, errPath string
	if c.RunDir != nil {
		outPath = c.RunDir.LogPath(c.Attempt, c.Host, p.Rank, "out")
		errPath = c.RunDir.LogPath(c.Attempt, c.Host, p.Rank, "err")
	}
	var err error
	if w.out, err = newStream(outPath, out, c.Log); err != nil {
		return nil, err
	}
	if w.errs, err = newStream(errPath, errs, c.Log); err != nil {
		w.out.drop()
		return nil, err
	}
	w.cmd = &exec.Cmd{Path: path, Args: c.Command, Dir: c.Dir, Env: workerEnviron(c, m, p)}
	return w, nil
}
