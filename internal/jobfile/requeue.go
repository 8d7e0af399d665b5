package jobfile

import (
	"slices"
	"time"

	"github.com/BurntSushi/toml"

	"ddpbatch/mpi/launch/recovery"
	"ddpbatch/slurm"
)

// How long before its end a job is warned: so much of its time limit, within bounds, where it does not say itself.
const (
	leadShare  = 10 // a tenth
	leadLeast  = 10 * time.Second
	leadMost   = 2 * time.Minute
	leadWarned = 2 // a half: a longer lead is warned about
)

// checkRequeue sets the lead, and warns about keys of [requeue] that contradict others.
func (c *checker) checkRequeue(values map[string]any, root *position) {
	table, _ := values["requeue"].(map[string]any)
	c.setLead(table["lead"] != nil, root)
	if !c.hasNoFault("requeue.on", "requeue.max") {
		return
	}
	r := c.job.Requeue
	for _, cause := range recovery.Causes() {
		key := toml.Key{"requeue", "max", string(cause)}
		if most, given := r.Max[cause]; given && most > 0 && r.Budget(cause) == 0 && c.hasNoFault(key.String()) {
			c.warn(root, key, "%s = %d counts for nothing: requeue.on does not name %q", key, most, cause)
		}
	}
	key := toml.Key{"slurm", "no_requeue"}
	_, never := c.job.Slurm.Get("no_requeue")
	if slices.ContainsFunc(c.job.Slurm.Extra, func(word string) bool { return slurm.Sets(word, "no_requeue") }) {
		key, never = toml.Key{"slurm", "extra"}, true
	}
	if never && table["on"] != nil && len(r.On) > 0 {
		c.warn(root, key, "%s: Slurm will refuse what requeue.on asks for; leave one of them out", key)
	}
}

// setLead finds out how long before its end the job is warned.
func (c *checker) setLead(given bool, root *position) {
	r, limit, key := &c.job.Requeue, c.job.timeLimit(), toml.Key{"requeue", "lead"}
	own := c.checkSignal(root)
	switch {
	case own > 0 && !given:
		r.Lead = own
	case own > 0 && c.hasNoFault(key.String()):
		if r.Lead != own {
			c.warn(root, key, "%s = \"%v\" counts for nothing: slurm.signal says that the job is warned %v before its end",
				key, r.Lead, own)
		}
		r.Lead = own
	case !given && limit > 0:
		r.Lead = min(max(limit/leadShare, leadLeast), leadMost)
	case !given || !c.hasNoFault(key.String()):
	case r.Lead < leadLeast:
		c.warn(root, key, "%s = \"%v\" leaves hardly any time to save; write \"%v\" or more", key, r.Lead, leadLeast)
	case limit > 0 && r.Lead > limit/leadWarned:
		c.warn(root, key, "%s = \"%v\" is more than half of the time limit (%s): the run is stopped before it has done much",
			key, r.Lead, slurm.FormatTime(limit))
	}
}

// Who does what about a signal: the batch script's traps, and ddpbatch run.
var (
	scriptWarns = []string{"USR1", "USR2"}               // hands it on as the warning
	scriptNotes = []string{"HUP", "INT", "QUIT", "TERM"} // takes note of it for the end
	agentStops  = []string{"HUP", "INT", "QUIT", "TERM"} // ends the workers
)

// checkSignal holds the user's own slurm.signal against who would get it, and tells how long before the limit it warns the run; 0: it does
// not.
func (c *checker) checkSignal(root *position) (lead time.Duration) {
	key := toml.Key{"slurm", "signal"}
	text, given := c.job.Slurm.Get("signal")
	if !given || !c.hasNoFault(key.String(), "launch.warn_signal") {
		return 0
	}
	w, err := slurm.ParseWarning(text)
	if err != nil {
		c.fault(root.at(key), key, "%s: %v", key, err)
		return 0
	}
	name, warns := w.Name(), c.job.Launch.WarnSignal
	switch {
	case w.Batch && !slices.Contains(slices.Concat(scriptWarns, scriptNotes), name):
		c.fault(root.at(key), key, "%s = %q: the batch script does not catch %s, which would end the job or do nothing; write %q",
			key, text, name, "B:USR2@120")
	case !w.Batch && name != warns && name != "USR1" && !slices.Contains(agentStops, name):
		c.fault(root.at(key), key, "%s = %q: ddpbatch run does not catch %s, which would end the job's tasks or do nothing; write %q",
			key, text, name, "B:USR2@120")
	case w.Lead == 0:
		c.warn(root, key, "%s = %q: Slurm sends no signal 0 seconds before the limit", key, text)
	case w.Batch && !slices.Contains(scriptWarns, name):
		c.warn(root, key, "%s = %q counts for nothing: the batch script takes note of %s and goes on; write %q",
			key, text, name, "B:USR2@120")
	case !w.Batch && name == "USR1" && warns != "USR1":
		c.warn(root, key, "%s = %q counts for nothing: without B: it goes to the tasks, to which USR1 says nothing; write %q",
			key, text, "B:"+text)
	case w.Batch || name == warns:
		return w.Lead
	}
	return 0
}
