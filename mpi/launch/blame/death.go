package blame

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// exitRequeue is the exit code of a worker that saved and asks to be started again (EX_TEMPFAIL of sysexits.h).
const exitRequeue = 75

// Death is how one rank's process ended, as its agent saw it. It travels between agents as JSON. All text in it
// is the worker's own, and not to be trusted.
type Death struct {
	Rank      int           `json:"rank"`
	LocalRank int           `json:"local_rank"`
	Host      string        `json:"host"`
	Exit      int           `json:"exit"`                 // code; 0 where a signal ended it
	Signal    int           `json:"signal,omitempty"`     // that ended it; 0: none
	Heard     time.Duration `json:"heard"`                // since the round began, on agent 0's clock
	Told      bool          `json:"told,omitempty"`       // it died after its agent had told it to stop
	Tail      []string      `json:"tail,omitempty"`       // its last lines, as Words puts them together
	ErrorFile *TorchError   `json:"error_file,omitempty"` // nil: it wrote none
	OOM       string        `json:"oom,omitempty"`        // what shows that its memory ran out; "": nothing does
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
func (d Death) asked() bool { return d.Signal == 0 && d.Exit == exitRequeue }

// How says how it ended: "exited with code 7", "was killed by SIGKILL".
func (d Death) How() string {
	if d.Signal == 0 {
		return fmt.Sprintf("exited with code %d", d.Exit)
	}
	name := unix.SignalName(syscall.Signal(d.Signal))
	if name == "" {
		name = fmt.Sprintf("signal %d", d.Signal)
	}
	return "was killed by " + name
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
// say more of a failure, come first. The result is valid UTF-8 and bounded: where there is too much, the oldest lines of each go.
func Words(errs, outs []string) []string {
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
