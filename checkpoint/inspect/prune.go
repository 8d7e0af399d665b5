package inspect

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/text"
)

// Pruned is what happened, or would happen, to a checkpoint; its JSON names are a contract.
type Pruned struct {
	checkpoint.Decision
	Removed bool `json:"removed"`
}

// Prune removes the checkpoints that policy does not keep. With dryRun it only returns which these are. With ofMetric, some checkpoint must
// have the policy's metric, or Prune returns a NoMetricError. failed is the error that stopped the removals half way.
func (d Folder) Prune(ctx context.Context, policy checkpoint.Policy, ofMetric, dryRun bool) (rows []Pruned, failed, err error) {
	dir, err := d.OpenToWrite(ctx)
	if err != nil {
		return nil, nil, err
	}
	decisions, err := dir.Plan(ctx, policy)
	if err != nil {
		return nil, nil, err
	}
	if len(decisions) > 0 && ofMetric {
		if err := d.checkMetric(decisions, policy.Metric); err != nil {
			return nil, nil, err
		}
	}
	if !dryRun {
		_, failed = dir.Prune(ctx, policy)
	}
	if len(decisions) == 0 && failed == nil {
		return nil, nil, d.None()
	}
	rows = []Pruned{}
	for _, decision := range decisions {
		// A checkpoint counts as removed only if no begun removal is left either. Files of the user's may still be in its folder.
		rows = append(rows, Pruned{decision, !decision.Keep && lacks(decision.Path, "MANIFEST.json", "MANIFEST.deleting")})
	}
	return rows, failed, nil
}

// NoMetricError reports that no checkpoint has the metric that the user named.
type NoMetricError struct {
	Metric string
	Known  []string // metrics that checkpoints have
	in     string
}

func (e *NoMetricError) Error() string {
	what := "they have none at all"
	if len(e.Known) > 0 {
		what = "they have: " + text.Clean(strings.Join(e.Known, ", "))
	}
	return fmt.Sprintf("no checkpoint in %s has the metric %q; %s", e.in, e.Metric, what)
}

// checkMetric refuses a metric that no checkpoint has: it is probably mistyped, and with it none of the best would be kept.
func (d Folder) checkMetric(decisions []checkpoint.Decision, metric string) error {
	known := map[string]bool{}
	for _, decision := range decisions {
		if decision.Committed {
			for name := range decision.Metrics {
				known[name] = true
			}
		}
	}
	if known[metric] {
		return nil
	}
	return &NoMetricError{metric, slices.Sorted(maps.Keys(known)), d.From.Named(d.Path)}
}
