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

// Death is how one rank's process ended, as its agent saw it. It travels between agents as JSON. All text in it
// is the worker's own, and not to be trusted.
type Death struct {
	Rank      int           `json:"rank"`
	LocalRank int           `json:"local_rank"`
	Host      string        `json:"host"`
	Exit      int           `json:"exit"`                 // code; 0 where a signal ended it
	Signal    int           `json:"signal,omitempty"`     // that ended it; 0: none
	Ended     time.Duration `json:"heard"`                // since the round began, on agent 0's clock
	Stopping  bool          `json:"told,omitempty"`       // it died after its agent had told it to stop
	Tail      []string      `json:"tail,omitempty"`       // its last lines, as Words puts them together
	ErrorFile *TorchError   `json:"error_file,omitempty"` // nil: it wrote none
	OOM       string        `json:"oom,omitempty"`        // what shows that its memory ran out; "": nothing does
	Python    string        `json:"python,omitempty"`     // the python3 that it ran, of one that lacks a module; "": not known
	LogPath   string        `json:"log_path,omitempty"`   // the file with its last words; "": there is none
	Hint      string        `json:"-"`                    // what a person may do about it, by agent 0; "": nothing is known
}

// PortTaken tells whether the rank's last words are of an address that somebody else listens on.
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

// failed tells whether it did not end well.
func (d Death) failed() bool { return d.Exit != 0 || d.Signal != 0 }

// asked tells whether it ended to be started again.
func (d Death) asked() bool { return d.Signal == 0 && d.Exit == exit.Requeue }

// How says how it ended: "exited with code 7", "was killed by SIGKILL".
func (d Death) How() string {
	if d.Signal == 0 {
		return fmt.Sprintf("exited with code %d", d.Exit)
	}
	return "was killed by " + text.SignalName(syscall.Signal(d.Signal))
}

const (
	wordsOut   = 8       // lines of standard output where standard error has enough of its own
	wordsLines = 60      // lines in all: a traceback of some depth
	wordsBytes = 8 << 10 // that a death carries to agent 0, where those of a thousand ranks may meet
	wordsLine  = 1 << 10 // bytes of one line
)

// outMark is the line of a Tail after which standard output begins, where there was standard error.
const outMark = "-- standard output --"

// Words puts together a death's Tail from the last lines of standard error and output, oldest first: those of standard error, which
// say more of a failure, come first. Of what Python's faulthandler wrote the stack of one thread stays. The result is
// valid UTF-8 and bounded: where there is too much, the oldest lines of each go.
func Words(errs, outs []string) []string {
	errs, outs = shortenFaults(errs), shortenFaults(outs)
	outs = lastOf(outs, max(wordsOut, wordsLines-len(errs)), wordsBytes/4)
	errs = lastOf(errs, wordsLines-len(outs), wordsBytes-wordsBytes/4)
	if len(errs) > 0 && len(outs) > 0 {
		errs = append(errs, outMark)
	}
	return append(errs, outs...)
}

// words are the two parts of a Tail.
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

// account is what a rank's last words come to.
type account struct {
	nature nature
	error  string // the line that says what was wrong; "": none was found
	origin string // the exception from which that came, where it is another; "": none
	ended  bool   // it is of an exception that ended the process

	lines, originLines []string // error and origin with the lines that follow them
	trace              string   // see traceOf; "": there is no traceback
}

// nature is what the words say went wrong.
type nature int

const (
	silent nature = iota // nothing
	own                  // something here
	peer                 // another rank went away, or did not answer
	stop                 // it was told to stop
)

// peerWords are in the last words of a rank that failed because another one did. In lower case.
var peerWords = []string{
	// the operating system's, in every library's words (errno(3), "strerror")
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

// stopWords are in the last words of a rank that was told to stop, or whose own processes were, as its whole group is told: those that
// load data (torch/utils/data/_utils/signal_handling.py). A worker of those that a fault or KILL ended is its rank's own failure. In
// lower case.
var stopWords = []string{"keyboardinterrupt", "signalexception", "systemexit", "got signal: ", "cancellederror", "received sigterm",
	"is killed by signal: terminated", "is killed by signal: interrupt", "is killed by signal: hangup", "is killed by signal: quit",
	"is killed by signal: user defined"}

// lastWords reads what a rank said at its end: its error file, which holds one exception and no other noise, or else its
// last lines.
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
		a.nature = silent // words, but none of an error
	}
	return a
}

// ofChain takes the first exception of a chain for the cause: a rank that raises often meets, while it cleans up, peers that have
// gone meanwhile, and a rank whose peer has gone raises something of its own about it. A person is shown the last one, as Python
// does.
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

// memoryWords are in the words of a rank that got no memory: Python's, PyTorch's, C++'s, the C library's. In lower case.
var memoryWords = []string{"memoryerror", "outofmemoryerror", "out of memory", "can't allocate memory",
	"cannot allocate memory", "bad_alloc"}

// OutOfMemory tells whether a rank died for want of memory, by the kernel's word or by its own: that of the device, too.
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

// fatalWords begin the line in which programs that are not Python, or Python without a traceback, say what they die of.
var fatalWords = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(panic: |fatal error: |Fatal Python error: |\s*what\(\):|ddpbatch: |` +
		`\S+: error while loading shared libraries: |.*: Assertion .* failed)`)
})

// fatalLine is the index of the line in which a rank said, without a traceback, what it died of; -1: there is none. That Python was aborted
// says less than what the program said before it.
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
