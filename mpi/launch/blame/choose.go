package blame

import (
	"cmp"
	"slices"
	"syscall"
	"time"
)

// together is within what time of each other deaths are taken to have one cause: a rank that raised an exception may take that
// long to leave its interpreter, or to write its core, while those that lost it are already gone.
const together = 10 * time.Second

// How much earlier one error file must be than another to say which came first: PyTorch's have whole seconds, and two hosts' clocks
// differ.
const (
	clearlyEarlierHere  = time.Second
	clearlyEarlierThere = 2 * time.Second
)

// evidence is what kind of evidence a death is, the strongest first.
type evidence int

const (
	// firstHand: it failed before its agent told it to, of something that does not point at another rank.
	firstHand evidence = iota
	// suspect: it had been told to stop, but died of something of its own. Its agent may have told it because of others
	// that had lost it: between raising an exception and ending, a rank's connections are closed, and the others may end sooner.
	suspect
	// victim: its last words only say that a peer went away or did not answer.
	victim
	// obeyed: it had been told to stop, and did.
	obeyed
	// askedAgain: it saved and asks to be started again (exit code 75), which is no failure beside one.
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
	case d.OOM != "": // the kernel's word is better than any
		says = own
	case says == peer && words.ended: // and then, on its way out, whatever else
	case ownSignal(d): // it could not say anything any more
		says = own
	case d.Signal == int(syscall.SIGPIPE): // it wrote to a connection, or pipe, whose other end was gone
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

// ownSignal tells whether the signal that ended it is the work of no agent and of no lost peer: a fault in the program, or, where
// nobody told it to stop, a kill from outside (the kernel's, when memory runs out). ABRT is not one: libraries end a process
// with it when they lose a peer.
func ownSignal(d Death) bool {
	switch syscall.Signal(d.Signal) {
	case syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGILL, syscall.SIGSYS, syscall.SIGXCPU, syscall.SIGXFSZ:
		return true
	case syscall.SIGKILL:
		return !d.Stopping
	}
	return false
}

// Choose finds who failed first, in truth; the result is an index into deaths, -1 where no rank ended badly. It does not
// depend on the order of deaths.
//
//   - A rank that saved and asks to be started again (exit code 75) is no failure beside one: it was asked to.
//   - A rank that stopped when it was told to follows: somebody else was the reason.
//   - A rank whose last words only say that a peer went away follows, if another one died within some seconds that does not say
//     so: that one is the peer. If all say so, the network is to blame, or a rank that is not among them, and the first is named.
//   - A rank that died of its own, though told to stop, comes before those that only lost a peer, for it may be the peer;
//     it does not come before one that failed of its own untold.
//   - Among equals the one that agent 0 heard of first comes first, unless the time in its PyTorch error file is later, by more than
//     these times are accurate to: that is when an exception was raised, and not when its process had ended.
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

// ChooseFailed is Choose among those alone that failed of their own: neither of a lost peer nor because they were told to stop. -1 where
// there is none.
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

// clearlyEarlier tells whether a's exception was raised before b's, by their error files.
func clearlyEarlier(a, b Death) bool {
	if a.ErrorFile == nil || b.ErrorFile == nil || a.ErrorFile.Time.IsZero() || b.ErrorFile.Time.IsZero() {
		return false
	}
	margin := clearlyEarlierThere
	if a.Host == b.Host {
		margin = clearlyEarlierHere
	}
	return b.ErrorFile.Time.Sub(a.ErrorFile.Time) >= margin
}

// Victim tells whether a death is one that another rank's explains: its last words only say that a peer went away. Where it is the
// first that an agent hears of, the peer may be about to say why; an agent that tells it to stop at once may never know.
func Victim(d Death) bool { return evidenceOf(d) == victim }

// Followed tells of each death whether it is a consequence of another one: all that ended badly, but for the first and those that
// failed of their own before they were told to stop.
func Followed(deaths []Death, first int) []bool {
	followed := make([]bool, len(deaths))
	for i, d := range deaths {
		s := evidenceOf(d)
		followed[i] = i != first && s != done && s != firstHand
	}
	return followed
}
