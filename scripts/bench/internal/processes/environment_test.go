package processes

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// What a job around sets, or tunes one side, is no launch's; what says where things are is.
func TestPlacing(t *testing.T) {
	for _, name := range []string{
		"SLURM_NTASKS", "SLURMD_NODENAME", "SRUN_DEBUG", "SBATCH_PARTITION", "PMI_RANK", "PMI2_RANK", "PMIX_RANK", "PALS_RANKID", "OMPI_MCA_btl", "PRTE_MCA_plm",
		"PET_RDZV_ID", "TORCHELASTIC_RUN_ID", "DDPBATCH_TRANSPORT", "RANK", "NODE_RANK", "GROUP_RANK", "ROLE_RANK", "MASTER_PORT",
		"OMP_NUM_THREADS", "GOMP_CPU_AFFINITY", "KMP_AFFINITY", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "GLOO_SOCKET_IFNAME", "TORCH_NUM_THREADS",
		"UCX_TLS", "FI_PROVIDER", "MPIR_CVAR_NOLOCAL", "MPICH_ASYNC_PROGRESS", "HYDRA_TOPO_DEBUG", "ZSTD_CLEVEL", "ZSTD_NBTHREADS",
		"GOMAXPROCS", "GOGC", "GOMEMLIMIT", "GODEBUG",
	} {
		if !placing(name + "=8") {
			t.Errorf("%s reaches a launch", name)
		}
	}
	for _, name := range []string{"PATH", "HOME", "LD_LIBRARY_PATH", "PYTHONPATH", "RANKS", "GOPATH"} {
		if placing(name + "=8") {
			t.Errorf("%s does not reach a launch", name)
		}
	}
}

// What sbatch hands on to no job, a launch does not get either: package slurm's lists are not open to these programs.
func TestPlacingKnowsWhatSlurmDrops(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "slurm", "scrub.go"))
	if err != nil {
		t.Fatal(err)
	}
	lists := regexp.MustCompile(`(?s)var droppedPrefixes.*?\n}\n.*?var droppedNames.*?\n}\n`).Find(text)
	names := regexp.MustCompile(`"([A-Z_]+)"`).FindAllSubmatch(lists, -1)
	if len(names) < 20 {
		t.Fatalf("only %d names are found in slurm/scrub.go", len(names))
	}
	for _, name := range names {
		if !placing(string(name[1]) + "=8") {
			t.Errorf("%s reaches a launch", name[1])
		}
	}
}
