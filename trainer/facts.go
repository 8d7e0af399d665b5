package trainer

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"ddpbatch/trainer/data"
)

// facts are what must stay the same for a resumed run to take the very steps that it would have
// taken without a stop, by the names that users know them by. Epochs and the learning rate are not among
// them: whoever changes those wants other steps. Nor are paths, which may move.
type facts map[string]string

func factsOf(cfg Config, train data.Dataset, world int) facts {
	spec := train.Spec()
	f := facts{
		"world size":         fmt.Sprint(world),
		"batch_size":         fmt.Sprint(cfg.BatchSize),
		"seed":               fmt.Sprint(cfg.Seed),
		"loss":               cfg.Loss,
		"model.kind":         cfg.Model.Kind,
		"data.kind":          cfg.Data.Kind,
		"data.train":         cfg.Data.Train,
		"data.shuffle":       fmt.Sprint(cfg.Data.Shuffle),
		"rows to train on":   fmt.Sprint(train.Len()),
		"inputs of a row":    fmt.Sprint(spec.Inputs),
		"outputs of a row":   fmt.Sprint(spec.Outputs + spec.Classes),
		"optimizer.kind":     cfg.Optimizer.Kind,
		"optimizer.momentum": fmt.Sprint(cfg.Optimizer.Momentum),
	}
	if cfg.Model.Kind == "mlp" {
		f["model.hidden"] = fmt.Sprint(cfg.Model.Hidden)
		f["model.activation"] = cfg.Model.Activation
	}
	switch cfg.Data.Kind {
	case "mnist":
		// Files may change under their names. Half of the hash is plenty against accidents.
		sum := data.Digest(train)
		f["SHA-256 of the rows"] = fmt.Sprintf("%x", sum[:len(sum)/2])
	case "generated": // a function of these
		f["data.rows"] = fmt.Sprint(cfg.Data.Rows)
		f["data.noise"] = fmt.Sprint(cfg.Data.Noise)
	}
	return f
}

// digest is a hash of f in hexadecimal.
func (f facts) digest() string {
	text, err := json.Marshal(f) // with its keys in order
	if err != nil {
		panic("trainer: a map of strings has no JSON")
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))
}

// differences names what saved and f do not have in common, in the order of the names; empty: nothing.
func (f facts) differences(saved facts) string {
	names := maps.Clone(f)
	maps.Copy(names, saved)
	var all []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if here, there := f[name], saved[name]; here != there {
			all = append(all, fmt.Sprintf("%s is %s in the checkpoint and %s here", name, orNone(there), orNone(here)))
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
