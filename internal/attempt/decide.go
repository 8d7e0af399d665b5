package attempt

import (
	"slices"

	"ddpbatch/internal/rundir"
	"ddpbatch/mpi/launch/recovery"
)

// Only this file decides what follows an attempt, whoever handles its end: End, in the batch script; Begin, if the batch script died before
// it could and Slurm has started the job again; or package simulate, in Slurm's place. The first row that holds decides.
//
//	what is known                                 | action  | ledger           | exit code of End          | of Begin
//	a later start, or another job, has begun one  | -       | -                | 93                        | -
//	the run is done                               | Finish  | -                | 0                         | 0
//	requeue.on, budget or no progress forbid it   | GiveUp  | give-up          | the worker's; 93 for a 75 | 93
//	a person has canceled the job                 | GiveUp  | give-up          | as above                  | 93
//	the simulated Slurm forbids it                | GiveUp  | give-up          | as above                  | -
//	the job is a link of a chain that timed out   | EndLink | link-end         | 75                        | the next link
//	none of these                                 | Requeue | requeue          | 75                        | begins
//
// If a link of a chain finds that another link did not record what follows, it decides between the last two rows in the other link's place
// (link.go). After Finish or GiveUp the later links are canceled; after any other end they go on.
//
// A decision to requeue may fail (Attempt.Act):
//
//	the job is canceled before Slurm has put it back into the queue   | GiveUp | refused, give-up | as above | -
//	Slurm refuses                                                     | -      | refused          | 75       | -
//	Slurm does not answer                                             | -      | -                | 75       | -

// known holds what a decision is based on.
type known struct {
	policy  recovery.Policy
	history []rundir.Event
	verdict rundir.Verdict
	facts   Facts
	link    bool // the job is one of a chain
	begun   bool // Slurm has started the job again already, whatever requeue.on names: only the budget and a lack of progress count
}

// decide implements the table, except for its first row: callers return an error for a superseded attempt.
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

// JobCancelled is the reason why a canceled job is not started again.
const JobCancelled = "the job was cancelled"
