package jobfile

import (
	"slices"
	"time"

	"github.com/BurntSushi/toml"

	"ddpbatch/mpi/launch/recovery"
	"ddpbatch/slurm"
)

// The default of requeue.lead: a share of the time limit, within bounds.
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
			c.warn(root, key, "%s = %d has no effect: requeue.on does not name %q", key, most, cause)
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

// setLead sets how long before its end the job is warned.
func (c *checker) setLead(given bool, root *position) {
	r, limit, key := &c.job.Requeue, c.job.timeLimit(), toml.Key{"requeue", "lead"}
	own := c.checkSignal(root)
	switch {
	case own > 0 && !given:
		r.Lead = own
	case own > 0 && c.hasNoFault(key.String()):
		if r.Lead != own {
			c.warn(root, key, "%s = \"%v\" has no effect: slurm.signal says that the job is warned %v before its end",
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

// What the batch script's traps and ddpbatch run do with signals.
var (
	scriptWarns = []string{"USR1", "USR2"}               // the script passes them on as the warning
	scriptNotes = []string{"HUP", "INT", "QUIT", "TERM"} // the script records them for its end
	agentStops  = []string{"HUP", "INT", "QUIT", "TERM"} // ddpbatch run ends the workers
)

// checkSignal checks the user's own slurm.signal against what its receiver does with it. It returns how long before the limit it warns the
// run, or 0 if it does not.
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
		c.warn(root, key, "%s = %q: Slurm does not send a signal 0 seconds before the limit", key, text)
	case w.Batch && !slices.Contains(scriptWarns, name):
		c.warn(root, key, "%s = %q has no effect: the batch script only records %s and goes on; write %q",
			key, text, name, "B:USR2@120")
	case !w.Batch && name == "USR1" && warns != "USR1":
		c.warn(root, key, "%s = %q has no effect: without B: the signal goes to the tasks, which ignore USR1; write %q",
			key, text, "B:"+text)
	case w.Batch || name == warns:
		return w.Lead
	}
	return 0
}
