package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/jobfile"
)

// policy is what the flags say, or the run's job where there are none.
func (p ckptPlace) policy(c *cli.Context) (checkpoint.Policy, error) {
	policy := checkpoint.Policy{
		Last: c.Int("keep-last"), Every: c.Int64("keep-every"), Within: c.Duration("keep-within"),
		Best: c.Int("keep-best"), Metric: c.String("metric"), Max: c.Bool("max"),
	}
	given := c.IsSet("keep-last") || c.IsSet("keep-every") || c.IsSet("keep-within") || c.IsSet("keep-best")
	switch {
	case (policy.Best > 0) != (policy.Metric != ""):
		return policy, usagef("--keep-best N and --metric NAME belong together")
	case policy.Max && policy.Metric == "":
		return policy, usagef("--max says which way --metric goes; name one")
	case policy.Last < 0 || policy.Every < 0 || policy.Within < 0 || policy.Best < 0:
		return policy, usagef("what to keep is a number from 0")
	case !given && p.run != nil:
		job, err := jobOf(p.run)
		if err != nil {
			return policy, err
		}
		policy = job.Checkpoint.Policy(job.Train.Evaluate.Best)
	}
	if policy == (checkpoint.Policy{}) {
		return policy, usagef("there is no rule of what to keep, so all would go; name one: --keep-last N, --keep-every N, --keep-within D or --keep-best N --metric NAME")
	}
	if policy.Last == 0 && given {
		policy.Last = 2 // the rules that are given say what to keep beyond the fallback that every run needs
	}
	if err := policy.Validate(); err != nil {
		return policy, usagef("%v", err)
	}
	return policy, nil
}

// hasMetric refuses a metric that no checkpoint has: it is mistyped, and by it all of the best would go.
func (p ckptPlace) hasMetric(e *env, plan []checkpoint.Decision, metric string) error {
	known := map[string]bool{}
	for _, d := range plan {
		if d.Committed {
			for name := range d.Metrics {
				known[name] = true
			}
		}
	}
	if known[metric] {
		return nil
	}
	err := &usageError{message: fmt.Sprintf("no checkpoint in %s has the metric %q; they have none at all", e.named(p.path), metric)}
	if names := slices.Sorted(maps.Keys(known)); len(names) > 0 {
		err.message = fmt.Sprintf("no checkpoint in %s has the metric %q; they have: %s", e.named(p.path), metric, clean(strings.Join(names, ", ")))
		if near := jobfile.Nearest(metric, names); near != "" {
			err.hint = fmt.Sprintf("did you mean %q?", near)
		}
	}
	return err
}
