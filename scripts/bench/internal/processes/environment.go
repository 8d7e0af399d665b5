package processes

import (
	"slices"
	"strings"
)

// placedPrefixes and placedNames are of variables that a job around this program sets: at least those of slurm.Scrub, and Open MPI 5's.
var (
	placedPrefixes = []string{"SLURM_", "SLURMD_", "SRUN_", "SBATCH_", "PMI", "PALS_", "OMPI_", "PRTE_", "TORCHELASTIC_", "PET_", "DDPBATCH_"}
	placedNames    = []string{
		"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "GROUP_WORLD_SIZE",
		"ROLE_NAME", "ROLE_RANK", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
	}
)

// tuningPrefixes and tuningNames are of those that tune one of the sides.
var (
	tuningPrefixes = []string{
		"OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "BLIS_", "TORCH_", "ATEN_", "GLOO_", // PyTorch, and the libraries that compute
		"UCX_", "FI_", "MPIR_", "MPICH_", "HYDRA_", // MPI
		"ZSTD_",
	}
	tuningNames = []string{"GOMAXPROCS", "GOGC", "GOMEMLIMIT", "GODEBUG"}
)

// placing tells whether a variable would make a launch part of a job around this program, or change what it does: what a side has of
// these is what its command line shows.
func placing(variable string) bool {
	name, _, _ := strings.Cut(variable, "=")
	begins := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
	return slices.Contains(placedNames, name) || slices.Contains(tuningNames, name) ||
		slices.ContainsFunc(placedPrefixes, begins) || slices.ContainsFunc(tuningPrefixes, begins)
}
