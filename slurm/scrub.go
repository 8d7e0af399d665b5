package slurm

import (
	"slices"
	"strings"
)

// keptNames are variables of Slurm that belong to the user's site and not to a job: where its configuration is, and which cluster to
// talk to. A user's token (SLURM_JWT) is not kept: the job would carry it, and srun, which the job starts, does not work with one
// (schedmd.com/jwt.html).
var keptNames = map[string]bool{"SLURM_CONF": true, "SLURM_CLUSTERS": true}

// droppedPrefixes are the prefixes of the variables that a job, a step, a launcher (PMI, Open MPI, HPE's PALS, torchrun) or
// ddpbatch sets for its own processes, and of those that srun and sbatch read as options.
var droppedPrefixes = []string{
	"SLURM_", "SLURMD_", "SRUN_", "SBATCH_",
	"PMI", "PALS_", "OMPI_",
	"TORCHELASTIC_", "PET_", "DDPBATCH_",
}

// droppedNames are the variables by which torchrun tells a process its place in the world.
var droppedNames = map[string]bool{
	"RANK": true, "WORLD_SIZE": true,
	"LOCAL_RANK": true, "LOCAL_WORLD_SIZE": true,
	"NODE_RANK": true, "GROUP_RANK": true, "GROUP_WORLD_SIZE": true,
	"ROLE_NAME": true, "ROLE_RANK": true, "ROLE_WORLD_SIZE": true,
	"MASTER_ADDR": true, "MASTER_PORT": true,
}

// Scrub splits an environment ("NAME=value" each) into the variables that a new job may inherit and those that it must
// not. sbatch passes its own environment on, so a job that is submitted from inside another one would
// inherit the other's variables. Some conflicts are errors (a CPU count set twice stops srun), others are
// silent (an inherited SLURM_CPU_BIND has pinned eight ranks to four cores; SBATCH_* overrides
// what the script asks for; an old RANK splits one world into two).
//
// kept has the order of environ. dropped holds only names, since values may be secret, sorted and
// without duplicates. environ itself is not changed.
func Scrub(environ []string) (kept, dropped []string) {
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if isDropped(name) {
			dropped = append(dropped, name)
		} else {
			kept = append(kept, entry)
		}
	}
	slices.Sort(dropped)
	return kept, slices.Compact(dropped)
}

func isDropped(name string) bool {
	if keptNames[name] {
		return false
	}
	return droppedNames[name] || slices.ContainsFunc(droppedPrefixes, func(prefix string) bool {
		return strings.HasPrefix(name, prefix)
	})
}
