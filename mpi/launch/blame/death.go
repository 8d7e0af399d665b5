package blame

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/text"
)

// Death is how one rank's process ended, as its agent saw it. It travels between agents as JSON. All text in it comes from the
// worker, and is not to be trusted.
type Death struct {
	Rank      int           `json:"rank"`
	LocalRank int           `json:"local_rank"`
	Host      string        `json:"host"`
	Exit      int           `json:"exit"`                 // code; 0 if a signal ended it
	Signal    int           `json:"signal,omitempty"`     // the signal that ended it; 0: none
	Ended     time.Duration `json:"heard"`                // time since the round began, on agent 0's clock
	Stopping  bool          `json:"told,omitempty"`       // it ended after its agent had told it to stop
	Tail      []string      `json:"tail,omitempty"`       // its last lines, as Words combines them
	ErrorFile *TorchError   `json:"error_file,omitempty"` // nil: none was written
	OOM       string        `json:"oom,omitempty"`        // the evidence that it ran out of memory; "": none
	Python    string        `json:"python,omitempty"`     // its python3, if a module was missing; "": unknown
	Contained bool          `json:"contained,omitempty"`  // it ran in a container
	Simulated bool          `json:"simulated,omitempty"`  // its node was a pretended one of simulate
	LogPath   string        `json:"log_path,omitempty"`   // the file with its last lines; "": none
	Hint      string        `json:"-"`                    // agent 0's advice for a person; "": none
}

// PortTaken reports whether the rank's last lines say that an address was in use.
func (d Death) PortTaken() bool {
	words := d.Tail
	if d.ErrorFile != nil {
		words = append(slices.Clone(words), d.ErrorFile.Message, d.ErrorFile.Stack)
	}
	return slices.ContainsFunc(words, func(text string) bool {
		text = strings.ToLower(text)
		return strings.Contains(text, "address already in use") || strings.Contains(text, "eaddrinuse")
	})
}

// failed reports whether the rank did not end well.
func (d Death) failed() bool { return d.Exit != 0 || d.Signal != 0 }

// asked reports whether the rank asked to be started again.
func (d Death) asked() bool { return d.Signal == 0 && d.Exit == exit.Requeue }

// How describes how the rank ended: "exited with code 7", "was killed by SIGKILL".
func (d Death) How() string {
	if d.Signal == 0 {
		return fmt.Sprintf("exited with code %d", d.Exit)
	}
	return "was killed by " + text.SignalName(syscall.Signal(d.Signal))
}

const (
	wordsOut   = 8       // lines of standard output if standard error has enough lines
	wordsLines = 60      // lines in all, enough for a traceback of some depth
	wordsBytes = 8 << 10 // bytes in all; agent 0 may get those of a thousand ranks
	wordsLine  = 1 << 10 // bytes of one line
)

// outMark is the line of a Tail that separates standard error from standard output.
const outMark = "-- standard output --"

// Words builds a death's Tail from the last lines of standard error and output, oldest first. The lines of standard error come
// first, as they say more about a failure. Of the stacks that Python's faulthandler wrote, only one thread's is kept. The result is
// valid UTF-8 and bounded: the oldest lines of each stream are dropped.
func Words(errs, outs []string) []string {
	errs, outs = shortenFaults(errs), shortenFaults(outs)
	outs = lastOf(outs, max(wordsOut, wordsLines-len(errs)), wordsBytes/4)
	errs = lastOf(errs, wordsLines-len(outs), wordsBytes-wordsBytes/4)
	if len(errs) > 0 && len(outs) > 0 {
		errs = append(errs, outMark)
	}
	return append(errs, outs...)
}

// words returns the two parts of a Tail.
func (d Death) words() (errs, outs []string) {
	if at := slices.Index(d.Tail, outMark); at >= 0 {
		return d.Tail[:at], d.Tail[at+1:]
	}
	return d.Tail, nil
}

func lastOf(lines []string, most, bytes int) []string {
	lines = lines[max(0, len(lines)-most):]
	kept := make([]string, 0, len(lines))
	for i := len(lines) - 1; i >= 0; i-- {
		line := shown(lines[i])
		if len(line) > wordsLine {
			line = line[:wordsLine]
		}
		line = strings.ToValidUTF8(line, "?")
		if bytes -= len(line) + 1; bytes < 0 {
			break
		}
		kept = append(kept, line)
	}
	slices.Reverse(kept)
	return kept
}

// account summarizes a rank's last lines.
type account struct {
	nature nature
	error  string // the line that says what was wrong; "": none was found
	origin string // the exception that caused it, if that is another one; "": none
	ended  bool   // the exception ended the process

	lines, originLines []string // error and origin, with the lines after them
	trace              string   // see traceOf; "": no traceback
}

// nature is what went wrong according to the lines.
type nature int

const (
	silent nature = iota // they do not say
	own                  // something in this rank
	peer                 // another rank went away, or did not answer
	stop                 // it was told to stop
)

// peerWords are found in the last lines of a rank that failed because another one did. They are in lower case.
var peerWords = []string{
	// the operating system's messages, which every library prints (errno(3), "strerror")
	"connection reset by peer", "connection reset by remote peer", "connection refused", "broken pipe", "connection timed out",
	"no route to host", "connection aborted", "transport endpoint is not connected",
	// gloo (transport/tcp/pair.cc, unbound_buffer.cc)
	"connection closed by peer", "application timeout caused pair closure", "timed out waiting", "socket closed",
	// NCCL, and PyTorch around it (ProcessGroupNCCL.cpp)
	"ncclremoteerror", "remote process exited", "connection closed by remote peer", "watchdog caught collective operation timeout",
	"nccl communicator was aborted",
	// PyTorch's TCPStore (socket.cpp, TCPStore.cpp)
	"failed to recv, got 0 bytes", "connection was likely closed", "socket timeout", "client socket has timed out", "store->get('",
	// Open MPI, PMIx, UCX
	"mpi_err_proc_failed", "lost communication with", "lost connection", "endpoint timeout", "transport retry count exceeded",
	// ddpbatch's own (mpi, mpi/store, trainer)
	"connection lost", "it has left the group", "stopped by another rank", "another rank failed", "the connection to the store at ",
}

// stopWords are found in the last lines of a rank that was told to stop, or whose helper processes were, as when the whole process
// group is: those that load data (torch/utils/data/_utils/signal_handling.py). If a fault or KILL ended such a process, that is the
// rank's own failure. They are in lower case.
var stopWords = []string{"keyboardinterrupt", "signalexception", "systemexit", "got signal: ", "cancellederror", "received sigterm",
	"is killed by signal: terminated", "is killed by signal: interrupt", "is killed by signal: hangup", "is killed by signal: quit",
	"is killed by signal: user defined"}

// lastWords evaluates what a rank printed at its end: its error file, which holds exactly one exception, or else its last lines.
func lastWords(d Death) account {
	if e := d.ErrorFile; e != nil {
		if chain := chainOf(tracebacks(strings.Split(e.Stack, "\n"))); len(chain) > 0 {
			a := ofChain(chain)
			a.ended = true
			return a
		}
		if e.Message != "" {
			lines := strings.Split(e.Message, "\n")
			return account{nature: natureOf(lines), error: lines[0], ended: true, lines: lines[:min(len(lines), exceptionLines)]}
		}
	}
	errs, outs := d.words()
	for _, lines := range [][]string{errs, outs} {
		if chain := chainOf(tracebacks(lines)); len(chain) > 0 {
			return ofChain(chain)
		}
		if at := fatalLine(lines); at >= 0 {
			said := lines[at:min(len(lines), at+exceptionLines)]
			return account{nature: natureOf(said), error: lines[at], lines: said}
		}
	}
	a := account{nature: natureOf(d.Tail)}
	if a.nature == own {
		a.nature = silent // there are lines, but none with an error
	}
	return a
}

// ofChain takes the first exception of a chain for the cause. A rank that raises one often finds while it cleans up that its peers
// have ended, and a rank whose peer has ended raises something of its own about it. People see the last exception, as in Python.
func ofChain(chain []traceback) account {
	first, last := chain[0].exception, chain[len(chain)-1].exception
	a := account{
		nature: natureOf(first), error: last[0], ended: chain[0].main || chain[len(chain)-1].main, lines: last, trace: traceOf(chain),
	}
	if first[0] != last[0] {
		a.origin, a.originLines = first[0], first
	}
	return a
}

// memoryWords are messages of Python, PyTorch, C++ and the C library about failed allocations. They are in lower case.
var memoryWords = []string{"memoryerror", "outofmemoryerror", "out of memory", "can't allocate memory",
	"cannot allocate memory", "bad_alloc"}

// OutOfMemory reports whether a rank failed because it ran out of memory, the device's included, according to the kernel or its own
// message.
func (d Death) OutOfMemory() bool {
	a := lastWords(d)
	text := strings.ToLower(a.error + "\n" + a.origin)
	return d.OOM != "" || d.failed() && slices.ContainsFunc(memoryWords, func(w string) bool { return strings.Contains(text, w) })
}

func natureOf(lines []string) nature {
	text := strings.ToLower(strings.Join(lines, "\n"))
	holds := func(w string) bool { return strings.Contains(text, w) }
	switch {
	case slices.ContainsFunc(peerWords, holds):
		return peer
	case slices.ContainsFunc(stopWords, holds):
		return stop
	}
	return own
}

// fatalWords begin the line in which programs other than Python, or Python without a traceback, report a fatal error.
var fatalWords = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(panic: |fatal error: |Fatal Python error: |\s*what\(\):|ddpbatch: |` +
		`\S+: error while loading shared libraries: |.*: Assertion .* failed)`)
})

// fatalLine is the index of the line in which a rank reported a fatal error without a traceback, or -1. A line before it says more
// than faulthandler's "Aborted".
func fatalLine(lines []string) int {
	aborted := -1
	for i := len(lines) - 1; i >= 0; i-- {
		line := rankLabel().ReplaceAllString(lines[i], "")
		switch {
		case line == abortedLine:
			aborted = max(aborted, i)
		case exceptionLine().MatchString(line) || fatalWords().MatchString(line):
			return i
		}
	}
	return aborted
}
