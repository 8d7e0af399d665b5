package attempt

import (
	"slices"

	"ddpbatch/internal/rundir"
	"ddpbatch/mpi/launch/recovery"
)

// What follows an attempt is decided here alone, whoever finds its end: End, in the batch script; Begin, where the batch script did not
// live to do so and Slurm has started the job again; or package simulate, in Slurm's place. The first row that holds decides.
//
//	what is known                                 | action  | ledger           | exit code of End          | of Begin
//	a later start, or another job, has begun one  | -       | -                | 93                        | -
//	the run is done                               | Finish  | -                | 0                         | 0
//	requeue.on, budget or no progress forbid it   | GiveUp  | give-up          | the worker's; 93 for a 75 | 93
//	a person has cancelled the job                | GiveUp  | give-up          | as above                  | 93
//	who plays Slurm forbids it                    | GiveUp  | give-up          | as above                  | -
//	the job is a link of a chain that timed out   | EndLink | link-end         | 75                        | the next link
//	none of these                                 | Requeue | requeue          | 75                        | begins
//
// Of the last two, the link of a chain that finds an attempt of another link without a word decides in that one's place (link.go). Links
// that come after one that ends with Finish or GiveUp are cancelled; after any other end they go on.
//
// What was decided may not come about (Attempt.Act):
//
//	the job is cancelled before Slurm has put it back into the queue  | GiveUp | refused, give-up | as above | -
//	Slurm refuses                                                     | -      | refused          | 75       | -
//	Slurm does not answer                                             | -      | -                | 75       | -

// known is what a decision is made of.
type known struct {
	policy  recovery.Policy
	history []rundir.Event
	verdict rundir.Verdict
	facts   Facts
	link    bool // the job is one of a chain
	begun   bool // Slurm has started the job again already, whatever requeue.on names: what counts are budget and lack of progress
}

// decide is the table. A superseded attempt does not come so far.
func (k known) decide() recovery.Decision {
	cause := recovery.CauseOf(k.verdict)
	k.policy.Chain = k.link
	if k.begun && slices.Contains(recovery.Causes(), cause) && !k.policy.Names(cause) {
		k.policy.On = append(slices.Clone(k.policy.On), cause)
	}
	d := recovery.Decide(k.policy, k.history, k.verdict, false, 0)
	switch {
	case d.Action != recovery.Requeue && d.Action != recovery.EndLink:
		return d
	case k.facts.Cancelled():
		return recovery.Decision{Action: recovery.GiveUp, Why: JobCancelled}
	case k.facts.Forbids != "":
		return recovery.Decision{Action: recovery.GiveUp, Why: k.facts.Forbids}
	}
	return d
}

// JobCancelled is why a cancelled job is not started again.
const JobCancelled = "the job was cancelled"
