package jobfile

import (
	"slices"

	"github.com/BurntSushi/toml"
)

// A gap is something that the schema knows and this version does not do. What builds it deletes
// its row here.
type gap struct {
	key   string
	allow []any  // the values that are fine all the same
	warn  bool   // it is only not acted on yet: a warning. Else a fault
	why   string // what this version does, and what to write instead
}

func gaps() []gap {
	return []gap{
		{key: "slurm.clusters", why: "this version follows its jobs on one cluster only: set SLURM_CLUSTERS in the shell instead"},
		{key: "container", why: "this version starts no containers: put the call of the container's program into launch.command"},
		{key: "launch.interface", why: "this version meets at the address of the first node's name: leave it out"},
		{key: "launch.max_restarts", allow: []any{int64(0)}, warn: true, why: "this version does not restart within a job: go on with `ddpbatch resume`"},
		{key: "launch.warn_signal", warn: true, why: "this version forwards no warnings yet"},
		{key: "requeue", warn: true, why: "this version does not requeue by itself: go on with `ddpbatch resume`"},
		{key: "mpi.transport", allow: []any{"auto", "shm", "tcp"}, why: `this version has no InfiniBand transport: write "auto", "shm" or "tcp"`},
		{key: "train.mode", allow: []any{"ddp"}, why: `this version has one replica per rank only: write "ddp"`},
		{key: "train.pipeline", allow: []any{int64(1)}, why: "this version does not split a model: write 1"},
		{key: "train.precision", allow: []any{"float32"}, why: "this version trains in float32 only"},
		{key: "train.blas", allow: []any{"auto", "gonum"}, why: `this version computes in Go and loads no library: write "auto" or "gonum"`},
		{key: "train.init", why: "this version starts from its own random parameters only: leave it out"},
		{key: "train.model.kind", allow: []any{"mlp", "dense"}, why: `this version has "mlp" and "dense" only`},
		{key: "train.data.kind", allow: []any{"mnist", "generated"}, why: `this version reads "mnist" (IDX files) and "generated" only`},
		{key: "train.schedule.kind", allow: []any{"constant"}, why: "this version keeps the learning rate constant: leave the schedule out"},
		{key: "train.schedule.warmup_steps", allow: []any{int64(0)}, why: "this version keeps the learning rate constant: leave the schedule out"},
		{key: "train.ddp.bucket_mb", warn: true, why: "this version averages all gradients in one buffer"},
		{key: "train.ddp.compress", allow: []any{"none"}, why: `this version sends gradients as they are: write "none"`},
		{key: "train.ddp.overlap", allow: []any{false}, warn: true, why: "this version averages gradients after the backward pass"},
		{key: "checkpoint.async", allow: []any{false}, warn: true, why: "this version saves while the ranks wait"},
	}
}

// gap notes what this version does not do with a value, and tells whether the job can run
// all the same.
func (c *checker) gap(g *gap, key toml.Key, v any, at *place) bool {
	what := key.String()
	switch v := v.(type) {
	case map[string]any:
		what = "[" + what + "]"
	case []any:
	case string:
		what += " = " + short(v)
	default:
		what += " = " + describe(v)
	}
	switch {
	case slices.Contains(g.allow, v):
		return true
	case g.warn:
		c.warnings = append(c.warnings, finding{at, key, what + ": " + g.why})
		return true
	default:
		c.fault(at, key, "%s: %s", what, g.why)
		return false
	}
}
