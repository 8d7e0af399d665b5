package trainer

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"ddpbatch/checkpoint"
	"ddpbatch/mpi"
	"ddpbatch/trainer/data"
	"ddpbatch/trainer/ddp"
)

// facts are what must stay the same for a run to be resumed, under the names that users know. Epochs, the
// learning rate and its schedule are not among them: a user who changes those wants other steps. Nor are paths, which may
// change, nor how ranks work together: a run may be resumed with other ranks.
type facts map[string]string

func factsOf(ctx context.Context, cfg Config, train data.Dataset) (facts, error) {
	spec, f := train.Spec(), configFacts(cfg)
	f["rows to train on"] = fmt.Sprint(train.Len())
	f["inputs of a row"] = fmt.Sprint(spec.Inputs)
	f["outputs of a row"] = fmt.Sprint(spec.Outputs + spec.Classes)
	if cfg.Data.Kind != "generated" {
		// Files may change under their names. Half of the hash is enough to detect accidents.
		sum, err := data.Digest(ctx, train)
		if err != nil {
			return nil, err
		}
		f["SHA-256 of the rows"] = fmt.Sprintf("%x", sum[:len(sum)/2])
	}
	return f, nil
}

// configFacts returns the facts that do not depend on the job's data.
func configFacts(cfg Config) facts {
	f := facts{
		"batch_size":     fmt.Sprint(cfg.BatchSize),
		"accumulate":     fmt.Sprint(cfg.Accumulate),
		"seed":           fmt.Sprint(cfg.Seed),
		"loss":           cfg.Loss,
		"precision":      cfg.Precision,
		"clip_norm":      fmt.Sprint(cfg.ClipNorm),
		"data.kind":      cfg.Data.Kind,
		"data.train":     cfg.Data.Train,
		"data.shuffle":   fmt.Sprint(cfg.Data.Shuffle),
		"data.remainder": cfg.Data.Remainder,
		"ddp.compress":   cfg.DDP.Compress,
	}
	f.addModel(cfg.Model)
	f.addOptimizer(cfg.Optimizer)
	if cfg.Data.Kind == "generated" { // a function of these
		f["data.rows"] = fmt.Sprint(cfg.Data.Rows)
		f["data.noise"] = fmt.Sprint(cfg.Data.Noise)
	}
	return f
}

// Fits returns an error that matches [ErrMismatch] if a job with cfg cannot resume from c, as far as that is known without the job's data.
// The error names what differs.
func Fits(cfg Config, c *checkpoint.Checkpoint) error {
	var saved facts
	if err := readValue(c, keyFacts, &saved); err != nil {
		return err
	}
	own := configFacts(cfg)
	maps.DeleteFunc(saved, func(name, _ string) bool { _, both := own[name]; return !both })
	return own.fits(saved)
}

// fits returns an ErrMismatch if f and what was saved are not the same.
func (f facts) fits(saved facts) error {
	if d := f.differences(saved, "in the checkpoint"); d != "" {
		return fmt.Errorf("%w: %s; change the job back, or start a new run", ErrMismatch, d)
	}
	return nil
}

func (f facts) addModel(m ModelConfig) {
	f["model.kind"] = m.Kind
	f["model.dropout"] = fmt.Sprint(m.Dropout)
	switch m.Kind {
	case "mlp":
		f["model.hidden"] = fmt.Sprint(m.hidden())
		f["model.activation"] = m.Activation
	case "cnn":
		f["model.channels"] = fmt.Sprint(m.Channels)
		f["model.kernel"] = fmt.Sprint(m.Kernel)
		f["model.batch_norm"] = fmt.Sprint(m.BatchNorm)
		f["model.hidden"] = fmt.Sprint(m.hidden())
	case "gpt":
		f["model.layers"] = fmt.Sprint(m.Layers)
		f["model.heads"] = fmt.Sprint(m.Heads)
		f["model.width"] = fmt.Sprint(m.Width)
		f["model.context"] = fmt.Sprint(m.Context)
	}
}

func (f facts) addOptimizer(o OptimizerConfig) {
	f["optimizer.kind"] = o.Kind
	f["optimizer.weight_decay"] = fmt.Sprint(o.WeightDecay)
	if o.Kind == "sgd" {
		f["optimizer.momentum"] = fmt.Sprint(o.Momentum)
		f["optimizer.dampening"] = fmt.Sprint(o.Dampening)
		f["optimizer.nesterov"] = fmt.Sprint(o.Nesterov)
		return
	}
	f["optimizer.betas"] = fmt.Sprint(o.Betas)
	f["optimizer.eps"] = fmt.Sprint(o.Eps)
}

// digest returns a hash of f in hexadecimal.
func (f facts) digest() string {
	text, err := json.Marshal(f) // with its keys in order
	if err != nil {
		panic("trainer: encode a map of strings: " + err.Error())
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))
}

// differences lists the entries in which f and other differ, in the order of their names. there says where other is. It returns "" if they
// are the same.
func (f facts) differences(other facts, there string) string {
	names := maps.Clone(f)
	maps.Copy(names, other)
	var all []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if f[name] != other[name] {
			all = append(all, fmt.Sprintf("%s is %s %s and %s here", name, orNone(other[name]), there, orNone(f[name])))
		}
	}
	return strings.Join(all, "; ")
}

func orNone(s string) string {
	if s == "" {
		return "unset"
	}
	return s
}

// agreeOnJob returns an error, on every rank, unless all ranks have the same job and the same data. It names what differs, and on which
// rank.
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
	differ := ddp.CompareDigests(ctx, comm, "training settings or data", sha256.Sum256(text))
	if differ == nil || comm.Err() != nil {
		return differ
	}
	first, err := mpi.BroadcastObject(ctx, comm, job, 0)
	if err != nil {
		return fmt.Errorf("%w; compare them: %w", differ, err)
	}
	var own error
	if d := job.differences(first, "on rank 0"); d != "" {
		own = fmt.Errorf("rank %d and rank 0 differ in their training settings or data: %s; start all ranks with the same "+
			"program, job file and data",
			comm.Rank(), d)
	}
	return mpi.Agree(ctx, comm, own, classes...)
}

// describe returns everything that must be the same on all ranks, under the names that users know.
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
