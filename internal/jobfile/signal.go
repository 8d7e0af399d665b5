package jobfile

import (
	"slices"
	"time"

	"github.com/BurntSushi/toml"

	"ddpbatch/slurm"
)

// Who does what about a signal: the batch script's traps, and ddpbatch run.
var (
	scriptWarns = []string{"USR1", "USR2"}               // hands it on as the warning
	scriptNotes = []string{"HUP", "INT", "QUIT", "TERM"} // takes note of it for the end
	agentStops  = []string{"HUP", "INT", "QUIT", "TERM"} // ends the workers
)

// signal holds the user's own slurm.signal against who would get it, and tells how long before the limit it warns the run; 0: it does
// not.
func (c *checker) signal(root *place) (lead time.Duration) {
	key := toml.Key{"slurm", "signal"}
	text, given := c.job.Slurm.Get("signal")
	if !given || !c.sound(key.String(), "launch.warn_signal") {
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
		c.fault(root.at(key), key, "%s = %q: the batch script does not catch %s, which would end the job or do nothing; write %q", key, text, name, "B:USR2@120")
	case !w.Batch && name != warns && name != "USR1" && !slices.Contains(agentStops, name):
		c.fault(root.at(key), key, "%s = %q: ddpbatch run does not catch %s, which would end the job's tasks or do nothing; write %q", key, text, name, "B:USR2@120")
	case w.Lead == 0:
		c.warn(root, key, "%s = %q: Slurm sends no signal 0 seconds before the limit", key, text)
	case w.Batch && !slices.Contains(scriptWarns, name):
		c.warn(root, key, "%s = %q counts for nothing: the batch script takes note of %s and goes on; write %q", key, text, name, "B:USR2@120")
	case !w.Batch && name == "USR1" && warns != "USR1":
		c.warn(root, key, "%s = %q counts for nothing: without B: it goes to the tasks, to which USR1 says nothing; write %q", key, text, "B:"+text)
	case w.Batch || name == warns:
		return w.Lead
	}
	return 0
}
