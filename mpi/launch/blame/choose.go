package blame

import (
	"cmp"
	"slices"
	"syscall"
	"time"
)

// together is the time within which failures are taken to have one cause. A rank that raised an exception may take that long to
// leave its interpreter, or to write its core, while those that lost it have already ended.
const together = 10 * time.Second

// One error file must be earlier than another by this margin to show which failure came first: times in PyTorch's files are whole
// seconds, and the clocks of two hosts differ.
const (
	clearlyEarlierHere      = time.Second
	clearlyEarlierElsewhere = 2 * time.Second
)

// evidence classifies a death, the strongest evidence of a cause first.
type evidence int

const (
	// firstHand: it failed before its agent told it to stop, of something that does not point to another rank.
	firstHand evidence = iota
	// suspect: it had been told to stop, but failed of something of its own. The agent may have told it because of others that had
	// lost it: a rank that raises an exception closes its connections before it ends, and the others may end sooner.
	suspect
	// victim: its last lines only say that a peer went away or did not answer.
	victim
	// obeyed: it had been told to stop, and did.
	obeyed
	// askedAgain: it saved and asks to be started again (exit code 75), which counts as a failure only if there is no other.
	askedAgain
	// done: it ended well.
	done
)

// evidenceOf judges one death.
func evidenceOf(d Death) evidence {
	switch {
	case !d.failed():
		return done
	case d.asked():
		return askedAgain
	}
	words := lastWords(d)
	says := words.nature
	switch {
	case d.OOM != "": // the kernel's evidence counts most
		says = own
	case says == peer && words.ended: // whatever it printed after that, while it ended
	case ownSignal(d): // it could not print anything after that
		says = own
	case d.Signal == int(syscall.SIGPIPE): // it wrote to a connection or pipe whose other end was closed
		says = peer
	}
	switch {
	case says == peer:
		return victim
	case !d.Stopping:
		return firstHand
	case says == own:
		return suspect
	}
	return obeyed
}

// ownSignal reports whether the signal that ended the rank came neither from an agent nor from the loss of a peer. It shows a fault
// in the program or, if the rank was not told to stop, a kill from outside (the kernel's, when memory runs out). ABRT does not
// count: libraries end a process with it when they lose a peer.
func ownSignal(d Death) bool {
	switch syscall.Signal(d.Signal) {
	case syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGILL, syscall.SIGSYS, syscall.SIGXCPU, syscall.SIGXFSZ:
		return true
	case syscall.SIGKILL:
		return !d.Stopping
	}
	return false
}

// Choose finds the rank that really failed first. The result is an index into deaths, or -1 if no rank failed. It does not depend
// on the order of deaths.
//
//   - A rank that saved and asks to be started again (exit code 75) counts as a failure only if there is no other: it was asked to.
//   - A rank that stopped when it was told to is not the cause: the reason was another rank.
//   - A rank whose last lines only say that a peer went away is not the cause, if another rank whose lines do not say so failed within some
//     seconds: that one is the peer. If all lines say so, the network failed, or a rank that is not among deaths, and the first is named.
//   - A rank that failed by itself, though told to stop, comes before those that only lost a peer, because it may be that peer. It does
//     not come before one that failed by itself without being told.
//   - Among equals, the one whose end agent 0 received first comes first. But if both have a PyTorch error file, and the times in them
//     differ clearly, the earlier time counts: it is when the exception was raised, not when the process had ended.
func Choose(deaths []Death) int {
	order := make([]int, len(deaths))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(deaths[a].Ended, deaths[b].Ended), cmp.Compare(deaths[a].Rank, deaths[b].Rank), cmp.Compare(a, b))
	})
	stand := make([]evidence, len(deaths))
	for i, d := range deaths {
		stand[i] = evidenceOf(d)
	}
	chosen := first(order, func(i int) bool { return stand[i] <= victim })
	if chosen < 0 {
		for _, s := range []evidence{obeyed, askedAgain} {
			if chosen = first(order, func(i int) bool { return stand[i] == s }); chosen >= 0 {
				return chosen
			}
		}
		return -1
	}
	near := func(i int) bool { return deaths[i].Ended-deaths[chosen].Ended <= together }
	switch stand[chosen] {
	case victim:
		if i := first(order, func(i int) bool { return stand[i] < victim && near(i) }); i >= 0 {
			chosen = i
		}
	case suspect:
		if i := first(order, func(i int) bool { return stand[i] == firstHand && near(i) }); i >= 0 {
			chosen = i // it was told to stop for a reason
		}
	}
	for _, i := range order {
		comparable := stand[i] == victim && stand[chosen] == victim || stand[i] < victim && stand[chosen] < victim
		if comparable && near(i) && clearlyEarlier(deaths[i], deaths[chosen]) {
			chosen = i
		}
	}
	return chosen
}

// ChooseFailed is Choose among the ranks that failed by themselves: neither because they lost a peer nor because they were told to
// stop. The result is -1 if there is none.
func ChooseFailed(deaths []Death) int {
	var failed []Death
	var at []int
	for i, d := range deaths {
		if evidenceOf(d) < victim {
			failed, at = append(failed, d), append(at, i)
		}
	}
	if i := Choose(failed); i >= 0 {
		return at[i]
	}
	return -1
}

func first(order []int, fits func(int) bool) int {
	for _, i := range order {
		if fits(i) {
			return i
		}
	}
	return -1
}

// clearlyEarlier reports whether, according to the error files, a's exception was raised clearly before b's.
func clearlyEarlier(a, b Death) bool {
	if a.ErrorFile == nil || b.ErrorFile == nil || a.ErrorFile.Time.IsZero() || b.ErrorFile.Time.IsZero() {
		return false
	}
	margin := clearlyEarlierElsewhere
	if a.Host == b.Host {
		margin = clearlyEarlierHere
	}
	return b.ErrorFile.Time.Sub(a.ErrorFile.Time) >= margin
}

// Victim reports whether another rank's failure explains a death: its last lines only say that a peer went away. If it is the first
// that an agent notices, the peer may be about to report the reason. An agent that stops the peer at once may never learn it.
func Victim(d Death) bool { return evidenceOf(d) == victim }

// Followed reports for each death whether it is a consequence of another one. That holds for all failures, except the first and
// those of ranks that failed by themselves before they were told to stop.
func Followed(deaths []Death, first int) []bool {
	followed := make([]bool, len(deaths))
	for i, d := range deaths {
		s := evidenceOf(d)
		followed[i] = i != first && s != done && s != firstHand
	}
	return followed
}
