package trainer

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"ddpbatch/mpi"
	"ddpbatch/trainer/data"
	"ddpbatch/trainer/ddp"
)

// agreeOnJob returns an error, on every rank, unless all have the same job and the same data. It names what differs, and on which rank.
func (t *trainer) agreeOnJob(ctx context.Context) error {
	job, err := t.describe(ctx)
	if err != nil {
		return err
	}
	text, err := json.Marshal(job) // with its keys in order
	if err != nil {
		return err
	}
	comm := t.env.Comm
	differ := ddp.Agree(ctx, comm, "training settings or data", sha256.Sum256(text))
	if differ == nil || comm.Err() != nil {
		return differ
	}
	first, err := mpi.BroadcastObject(ctx, comm, job, 0)
	if err != nil {
		return fmt.Errorf("%w; compare them: %w", differ, err)
	}
	var own error
	if d := job.differences(first, "on rank 0"); d != "" {
		own = fmt.Errorf("rank %d and rank 0 differ in their training settings or data: %s; start all ranks with the same program, job file and data",
			comm.Rank(), d)
	}
	return together(ctx, comm, own)
}

// describe is all that ranks must have in common, by the names that users know it by.
func (t *trainer) describe(ctx context.Context) (facts, error) {
	text, err := json.Marshal(t.cfg)
	if err != nil {
		return nil, err
	}
	var settings map[string]any
	if err := json.Unmarshal(text, &settings); err != nil {
		return nil, err
	}
	job := facts{}
	flatten(job, "", settings)
	for name, value := range t.facts {
		job[name] = value
	}
	if t.eval != nil {
		sum, err := data.Digest(ctx, t.eval)
		if err != nil {
			return nil, err
		}
		job["SHA-256 of the rows to evaluate on"] = fmt.Sprintf("%x", sum[:len(sum)/2])
	}
	return job, nil
}

// flatten adds the values of nested tables to f by their dotted keys.
func flatten(f facts, prefix string, table map[string]any) {
	for key, value := range table {
		if inner, ok := value.(map[string]any); ok {
			flatten(f, prefix+key+".", inner)
			continue
		}
		f[prefix+key] = fmt.Sprint(value)
	}
}
