package testkit

import (
	"os"
	"testing"
)

// SlurmCluster is the path of scripts/slurm-cluster, where ./scripts/test has brought up a cluster. Elsewhere it skips the test, and says
// why there is none.
func SlurmCluster(t testing.TB) string {
	t.Helper()
	script := os.Getenv("DDPBATCH_TEST_SLURM")
	if script == "" {
		why := os.Getenv("DDPBATCH_TEST_NO_SLURM")
		if why == "" {
			why = "./scripts/test starts one where it can, and sets DDPBATCH_TEST_SLURM"
		}
		t.Skip("needs a Slurm cluster: " + why)
	}
	return script
}
