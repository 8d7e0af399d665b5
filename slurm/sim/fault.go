package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Kind is what a fault does.
type Kind string

const (
	Kill      Kind = "kill"      // a rank gets SIGKILL
	Stop      Kind = "stop"      // a rank gets SIGSTOP, and SIGCONT after "for", if that is given
	Slow      Kind = "slow"      // a rank is stopped for a share of the time
	Term      Kind = "term"      // the job is preempted
	Timeout   Kind = "timeout"   // the job's time limit is reached, "lead" after a warning
	Warn      Kind = "warn"      // the warning before the time limit comes, but the limit does not
	NodeDies  Kind = "node"      // a node is gone, with all of its processes
	AgentDies Kind = "agent"     // the agent of a node gets SIGKILL
	Partition Kind = "partition" // a node is disconnected from the network, and lives on
	NoSpace   Kind = "nospace"   // the disk of the checkpoints is full, for "for", if that is given
)

// Fault is one thing that goes wrong.
type Fault struct {
	Kind  Kind
	Rank  int           // of kill, stop, slow
	Node  string        // of node, agent, partition: a name, or a number from 0
	For   time.Duration // of stop, slow, nospace; 0: for good
	Lead  time.Duration // of timeout; 0: no warning
	Share float64       // of slow: the part of the time in which the rank does not run
	// Everybody belongs to warn: the tasks get the signal, too, not only the batch script (sbatch --signal=USR2@lead and B:USR2@lead in
	// one).
	Everybody bool

	// When the fault is injected: at once if none of these is set.
	Step    int64         // as soon as the metrics have this step; 0: at any step
	Time    time.Duration // since the job began to run; 0: at any time
	Attempt int           // only in this attempt of the run; 0: in any

	Text string // as it was written
}

// defaultShare is the default share of slow: the rank runs for a tenth of the time.
const defaultShare = 0.9

// maxFault is the largest length of a fault's text, in bytes, and so bounds its errors.
const maxFault = 200

// String returns the fault as it was written.
func (f Fault) String() string { return f.Text }

// OnRank reports whether the fault hits a single rank.
func (f Fault) OnRank() bool { return f.Kind == Kill || f.Kind == Stop || f.Kind == Slow }

// OnNode reports whether the fault hits a single node.
func (f Fault) OnNode() bool {
	return f.Kind == NodeDies || f.Kind == AgentDies || f.Kind == Partition
}

// options are the options that each kind takes before its trigger. The name of the first may be omitted.
var options = map[Kind][]string{
	Kill: {"rank"}, Stop: {"rank", "for"}, Slow: {"rank", "share", "for"},
	Term: {}, Timeout: {"lead"}, Warn: {"all"},
	NodeDies: {"node"}, AgentDies: {"node"}, Partition: {"node"}, NoSpace: {"for"},
}

// Kinds lists the names of all faults, for messages.
const Kinds = "kill, stop, slow, term, timeout, warn, node, agent, partition, nospace"

// ParseFault parses a fault:
//
//	KIND[:OPTION=VALUE,...][@start|@step=N|@time=DURATION][#attempt=N]
//
// as in kill:rank=3@step=20, node:1@time=2s#attempt=1, slow:rank=0,share=0.5,for=10s. The first option of a kind may be
// written without its name. An error names the column of the first wrong byte, from 1.
func ParseFault(text string) (Fault, error) {
	p := &faultText{all: text}
	if len(text) > maxFault {
		p.all = text[:maxFault] + "..."
		return Fault{}, p.wrong(maxFault, "it is longer than %d bytes", maxFault)
	}
	f := Fault{Text: text, Rank: -1}
	head, when, timed := cutTrigger(text, 0)
	kind, list, listed := strings.Cut(head, ":")
	f.Kind = Kind(kind)
	known, ok := options[f.Kind]
	if !ok {
		return Fault{}, p.wrong(0, "unknown fault %q; write one of %s", kind, Kinds)
	}
	if listed {
		p.options(&f, known, list, len(kind)+1)
	}
	if timed {
		p.trigger(&f, when, len(head))
	}
	p.complete(&f, len(head))
	if p.err != nil {
		return Fault{}, p.err
	}
	return f, nil
}

// cutTrigger splits text before the first @ or # at or after byte from.
func cutTrigger(text string, from int) (before, rest string, found bool) {
	i := strings.IndexAny(text[from:], "@#")
	if i < 0 {
		return text, "", false
	}
	return text[:from+i], text[from+i:], true
}

// faultText is the text of a fault while it is parsed; err is the first error.
type faultText struct {
	all string
	err error
}

func (p *faultText) wrong(at int, format string, args ...any) error {
	if p.err == nil {
		p.err = fmt.Errorf("fault %q, column %d: %s", p.all, at+1, fmt.Sprintf(format, args...))
	}
	return p.err
}

// options parses "rank=3,for=2s", which begins at byte at.
func (p *faultText) options(f *Fault, known []string, list string, at int) {
	seen := map[string]bool{}
	for i, item := range strings.Split(list, ",") {
		name, value, named := strings.Cut(item, "=")
		valueAt := at + min(len(name)+1, len(item))
		switch {
		case !named && f.Kind == Warn && item == "all":
		case !named && i == 0 && len(known) > 0:
			name, value, valueAt = known[0], item, at
		}
		switch {
		case !slices.Contains(known, name):
			p.wrong(at, "%s does not have the option %q%s", f.Kind, name, thereAre(known))
		case seen[name]:
			p.wrong(at, "%s is given twice", name)
		default:
			p.option(f, name, value, valueAt)
		}
		seen[name] = true
		at += len(item) + 1
	}
}

func (p *faultText) option(f *Fault, name, value string, at int) {
	switch name {
	case "rank":
		f.Rank = int(p.number(value, at, 0, maxTasks))
	case "node":
		if f.Node = value; value == "" {
			p.wrong(at, "name the node, or give its number from 0")
		}
	case "all":
		if f.Everybody = value == ""; !f.Everybody {
			p.wrong(at, "write warn:all to send the signal to the tasks, too")
		}
	case "for":
		f.For = p.duration(value, at)
	case "lead":
		f.Lead = p.duration(value, at)
	case "share":
		share, err := strconv.ParseFloat(value, 64)
		if f.Share = share; err != nil || !(share > 0 && share < 1) {
			p.wrong(at, "share must be a number between 0 and 1, such as 0.9, not %q", value)
		}
	}
}

// trigger parses "@step=20#attempt=2", which begins at byte at.
func (p *faultText) trigger(f *Fault, text string, at int) {
	for text != "" {
		item, rest, _ := cutTrigger(text, 1)
		name, value, _ := strings.Cut(item, "=")
		valueAt := at + min(len(name)+1, len(item))
		switch {
		case name == "@start" && item == name:
		case name == "@step" && f.Step == 0 && f.Time == 0:
			f.Step = p.number(value, valueAt, 1, 1e12)
		case name == "@time" && f.Step == 0 && f.Time == 0:
			f.Time = p.duration(value, valueAt)
		case name == "#attempt" && f.Attempt == 0:
			f.Attempt = int(p.number(value, valueAt, 1, 1e6))
		default:
			p.wrong(at, "write when to inject it, as @start, @step=20 or @time=3s, and in which attempt, as "+
				"#attempt=2, each at most once, not %q", item)
			return
		}
		at, text = at+len(item), rest
	}
}

// complete fills in defaults, and refuses a fault that lacks its rank or node.
func (p *faultText) complete(f *Fault, at int) {
	switch {
	case f.OnRank() && f.Rank < 0:
		p.wrong(at, "say which rank: %s:rank=0", f.Kind)
	case f.OnNode() && f.Node == "":
		p.wrong(at, "say which node: %s:node=1", f.Kind)
	case f.Kind == Slow && f.Share == 0:
		f.Share = defaultShare
	}
}

func (p *faultText) number(text string, at int, low, high int64) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < low || n > high {
		p.wrong(at, "%q is not a whole number from %d to %d", text, low, high)
		return low
	}
	return n
}

func (p *faultText) duration(text string, at int) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		p.wrong(at, "%q is not a time such as 500ms, 3s or 2m", text)
		return 1
	}
	return d
}

func thereAre(known []string) string {
	if len(known) == 0 {
		return "; it does not take options"
	}
	return "; it takes " + strings.Join(known, ", ")
}
