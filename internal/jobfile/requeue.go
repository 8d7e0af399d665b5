package jobfile

import (
	"fmt"
	"slices"
	"time"

	"github.com/BurntSushi/toml"

	"ddpbatch/mpi/launch/recovery"
	"ddpbatch/slurm"
)

// requeueRows are the keys of [requeue].
func requeueRows() []row {
	rows := []row{
		{key: "requeue.on", read: causes},
		{key: "requeue.lead", read: duration(func(j *Job) *time.Duration { return &j.Requeue.Lead })},
		{key: "requeue.no_progress", read: whole(1, most, func(j *Job) *int { return &j.Requeue.NoProgress })},
	}
	for _, name := range causeNames() {
		rows = append(rows, row{key: "requeue.max." + name, read: budget})
	}
	return rows
}

// causeNames are the causes that [requeue] may name.
func causeNames() []string {
	var names []string
	for _, c := range recovery.Causes() {
		names = append(names, string(c))
	}
	return names
}

// isCause tells whether a word is a cause that [requeue] may name, or one's name in verdicts of earlier versions, which people copied.
func isCause(s string) bool { return slices.Contains(recovery.Causes(), recovery.Cause(s).Current()) }

// causes reads after which causes the job is requeued.
func causes(j *Job, key toml.Key, v any) error {
	var names []string
	if err := list(0, quoted(causeNames()), isCause, func(*Job) *[]string { return &names })(j, key, v); err != nil {
		return err
	}
	j.Requeue.On = nil
	for _, name := range names {
		j.Requeue.On = append(j.Requeue.On, recovery.Cause(name).Current())
	}
	return nil
}

// budget reads how many requeues one cause may take.
func budget(j *Job, key toml.Key, v any) error {
	var n int
	if err := whole(0, most, func(*Job) *int { return &n })(j, key, v); err != nil {
		return err
	}
	if j.Requeue.Max == nil {
		j.Requeue.Max = map[recovery.Cause]int{}
	}
	j.Requeue.Max[recovery.Cause(key[len(key)-1])] = n
	return nil
}

// How long before its end a job is warned: so much of its time limit, within bounds, where it does not say itself.
const (
	leadShare  = 10 // a tenth
	leadLeast  = 10 * time.Second
	leadMost   = 2 * time.Minute
	leadWarned = 2 // a half: a longer lead is warned about
)

// requeue settles the lead, and warns about keys of [requeue] that contradict others.
func (c *checker) requeue(values map[string]any, root *place) {
	table, _ := values["requeue"].(map[string]any)
	c.lead(table["lead"] != nil, root)
	if !c.sound("requeue.on", "requeue.max") {
		return
	}
	r := c.job.Requeue
	for _, cause := range recovery.Causes() {
		key := toml.Key{"requeue", "max", string(cause)}
		if most, given := r.Max[cause]; given && most > 0 && r.Budget(cause) == 0 && c.sound(key.String()) {
			c.warn(root, key, "%s = %d counts for nothing: requeue.on does not name %q", key, most, cause)
		}
	}
	key := toml.Key{"slurm", "no_requeue"}
	if _, never := c.job.Slurm.Get("no_requeue"); never && table["on"] != nil && len(r.On) > 0 {
		c.warn(root, key, "%s: Slurm will refuse what requeue.on asks for; leave one of them out", key)
	}
}

// lead settles how long before its end the job is warned.
func (c *checker) lead(given bool, root *place) {
	r, limit, key := &c.job.Requeue, c.job.timeLimit(), toml.Key{"requeue", "lead"}
	own := c.signal(root)
	switch {
	case own > 0 && !given:
		r.Lead = own
	case own > 0 && c.sound(key.String()):
		if r.Lead != own {
			c.warn(root, key, "%s = \"%v\" counts for nothing: slurm.signal says that the job is warned %v before its end", key, r.Lead, own)
		}
		r.Lead = own
	case !given && limit > 0:
		r.Lead = min(max(limit/leadShare, leadLeast), leadMost)
	case !given || !c.sound(key.String()):
	case r.Lead < leadLeast:
		c.warn(root, key, "%s = \"%v\" leaves hardly any time to save; write \"%v\" or more", key, r.Lead, leadLeast)
	case limit > 0 && r.Lead > limit/leadWarned:
		c.warn(root, key, "%s = \"%v\" is more than half of the time limit (%s): the run is stopped before it has done much", key, r.Lead, slurm.FormatTime(limit))
	}
}

// timeLimit is slurm.time; 0: none, or not said.
func (j *Job) timeLimit() time.Duration {
	text, _ := j.Slurm.Get("time")
	limit, err := slurm.ParseTime(text)
	if err != nil || limit == slurm.Unlimited {
		return 0
	}
	return limit
}

func (c *checker) warn(root *place, key toml.Key, format string, args ...any) {
	c.warnings = append(c.warnings, finding{root.at(key), key, fmt.Sprintf(format, args...)})
}
