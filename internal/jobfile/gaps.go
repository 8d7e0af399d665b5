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
	why   string // what this version does, and what to write instead
}

func gaps() []gap {
	return []gap{
		{key: "slurm.clusters", why: "this version follows its jobs on one cluster only: set SLURM_CLUSTERS in the shell instead"},
		{key: "container", why: "this version starts no containers: put the call of the container's program into launch.command"},
		{key: "mpi.transport", allow: []any{"auto", "shm", "tcp"}, why: `this version has no InfiniBand transport: write "auto", "shm" or "tcp"`},
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
	default:
		c.fault(at, key, "%s: %s", what, g.why)
		return false
	}
}
