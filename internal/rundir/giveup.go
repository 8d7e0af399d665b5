package rundir

// Why simulate itself does not begin a job again: whoever runs simulate may. They are details of EventGiveUp, which status knows them by.
const (
	OwnDeadline   = "DDPBATCH_DEADLINE is that of simulate itself"
	KilledAtLimit = "the batch script was killed at the time limit, before it could ask for a requeue"
)
