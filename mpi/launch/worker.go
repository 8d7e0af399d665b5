package launch

import (
	"os/exec"
	"syscall"
	"time"

	"ddpbatch/internal/proc"
	"ddpbatch/mpi/launch/device"
	"ddpbatch/mpi/launch/output"
)

// worker is one process of the run. It leads a process group of its own, which
// ends with it.
type worker struct {
	place     Place
	cmd       *exec.Cmd
	device    device.Plan
	process   *proc.Process
	out, errs *output.Stream
	logs      logs

	exit   int // its code; 0 where a signal killed it
	signal syscall.Signal

	words []string // its last ones, as blame.Words, before it was asked for its stacks; nil: it was not

	ended    time.Time // zero: it has not
	followed bool      // the workers were being stopped when it ended, see following
	warned   bool      // it got the warning's signal
}

// start starts the process; ended is called once, from another goroutine, when
// it is over and its exit and signal are set.
func (w *worker) start(guard *proc.Guard, ended func(*worker)) error {
	w.cmd.Stdout, w.cmd.Stderr = w.out.Pipe(), w.errs.Pipe()
	process, err := guard.Start(w.device.Cores, w.cmd)
	if err != nil {
		w.out.Drop()
		w.errs.Drop()
		return err
	}
	w.process = process
	w.out.Begin()
	w.errs.Begin()
	go func() {
		<-process.Done()
		w.out.End()
		w.errs.End()
		w.readOut()
		w.exit, w.signal = process.End()
		ended(w)
	}()
	return nil
}

// send signals the worker's process group, unless the worker is over.
func (w *worker) send(sig syscall.Signal) {
	_ = w.process.Signal(sig) // the signals are valid, and the group is ours or gone
}

const (
	// otherWords is how long the end of a worker waits for other processes that hold its pipe: one of its children may tell what it failed of.
	otherWords = 100 * time.Millisecond
	// lastWords is how often the worker's own last lines are looked for after that, once every lookForWords. They are there at once, unless
	// this process does not get the processor, or a slow console keeps it from reading.
	lastWords    = 100
	lookForWords = 10 * time.Millisecond
)

// readOut waits until all that the worker wrote was read, but not for long. The looks are counted and not timed: a busy machine may let the
// time pass without letting anybody read.
func (w *worker) readOut() {
	timer := time.NewTimer(otherWords)
	defer timer.Stop()
	for _, stream := range []*output.Stream{w.out, w.errs} {
		select {
		case <-stream.Done():
			continue
		case <-timer.C:
		}
		break
	}
	tick := time.NewTicker(lookForWords)
	defer tick.Stop()
	for looks := 0; looks < lastWords && !(w.out.CaughtUp() && w.errs.CaughtUp()); looks++ {
		<-tick.C
	}
}

// warn signals those of the worker's processes that have a handler; false where none has.
func (w *worker) warn(sig syscall.Signal) (bool, error) {
	told, err := w.process.Warn(sig)
	return told > 0, err
}

// newWorker makes a worker ready to start.
func (r *round) newWorker(p Place, path string, devices device.Plan, to *output.Mux) (*worker, error) {
	c := r.cfg
	files, err := r.logsOf(p)
	if err != nil {
		return nil, err
	}
	w := &worker{place: p, device: devices, logs: files}
	w.out, w.errs, err = to.Worker(output.Worker{Host: c.Host, Rank: p.Rank, LocalRank: p.LocalRank, Role: c.Role}, files.Paths)
	if err != nil {
		return nil, err
	}
	w.cmd = &exec.Cmd{Path: path, Args: c.commandOf(p), Dir: c.Dir, Env: workerEnviron(r, p, devices, files)}
	return w, nil
}
