package slurm_test

import (
	"path/filepath"
	"slices"
	"testing"

	"ddpbatch/slurm"
)

func TestScrub(t *testing.T) {
	environ := []string{
		"PATH=/bin", "SLURM_CONF=/etc/slurm/slurm.conf", "SLURM_JOB_ID=1", "HOME=/root", "RANK=3",
		"SLURM_CLUSTERS=lab", "SLURM_CPU_BIND=quiet,mask_cpu:0x1", "SLURMD_NODENAME=n1", "SLURM_CONF_X=1",
		"SRUN_CPUS_PER_TASK=2", "SBATCH_GPUS=8", "PMI_RANK=0", "PMI2_FD=3", "PMIX_NAMESPACE=x", "PALS_RANKID=0",
		"OMPI_COMM_WORLD_RANK=0", "WORLD_SIZE=8", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "NODE_RANK=1",
		"GROUP_RANK=1", "GROUP_WORLD_SIZE=4", "ROLE_NAME=default", "ROLE_RANK=1", "ROLE_WORLD_SIZE=8",
		"MASTER_ADDR=n1", "MASTER_PORT=29500", "TORCHELASTIC_RUN_ID=secret", "PET_NNODES=2", "SLURM_JWT=secret", "DDPBATCH_RUN_DIR=/runs/1",
		"NCCL_DEBUG=INFO", "OMP_NUM_THREADS=1", "RANKING=3", "MY_RANK=1", "AWS_ROLE_ARN=x", "ROLE=web", "GROUP=users",
		"slurm_x=1", "TORCH_HOME=/t", "EMPTY=", "NOEQUALS", "RANK=4", "SLURM_CLUSTER_NAME=c", "BASH_FUNC_f%%=() { RANK=1; }", "",
	}
	before := slices.Clone(environ)
	kept, dropped := slurm.Scrub(environ)
	wantKept := []string{
		"PATH=/bin", "SLURM_CONF=/etc/slurm/slurm.conf", "HOME=/root", "SLURM_CLUSTERS=lab",
		"NCCL_DEBUG=INFO", "OMP_NUM_THREADS=1", "RANKING=3", "MY_RANK=1", "AWS_ROLE_ARN=x", "ROLE=web", "GROUP=users",
		"slurm_x=1", "TORCH_HOME=/t", "EMPTY=", "NOEQUALS", "BASH_FUNC_f%%=() { RANK=1; }", "",
	}
	wantDropped := []string{
		"DDPBATCH_RUN_DIR", "GROUP_RANK", "GROUP_WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
		"NODE_RANK", "OMPI_COMM_WORLD_RANK", "PALS_RANKID", "PET_NNODES", "PMI2_FD", "PMIX_NAMESPACE", "PMI_RANK", "RANK", "ROLE_NAME",
		"ROLE_RANK", "ROLE_WORLD_SIZE", "SBATCH_GPUS", "SLURMD_NODENAME", "SLURM_CLUSTER_NAME", "SLURM_CONF_X", "SLURM_CPU_BIND",
		"SLURM_JOB_ID", "SLURM_JWT",
		"SRUN_CPUS_PER_TASK", "TORCHELASTIC_RUN_ID", "WORLD_SIZE",
	}
	if !slices.Equal(kept, wantKept) {
		t.Errorf("kept\n%q, want\n%q", kept, wantKept)
	}
	if !slices.Equal(dropped, wantDropped) {
		t.Errorf("dropped\n%q, want\n%q", dropped, wantDropped)
	}
	if !slices.Equal(environ, before) {
		t.Error("the argument was changed")
	}
	again, none := slurm.Scrub(kept)
	if !slices.Equal(again, kept) || len(none) != 0 {
		t.Errorf("a second scrub drops %q", none)
	}
}

// After a scrub a real task's environment no longer looks like a job.
func TestScrubbedTaskIsNotAJob(t *testing.T) {
	env := readEnvFile(t, filepath.Join(dumps, "15-mpi-pmi2", "task-03.env"))
	var environ []string
	for name, value := range env {
		environ = append(environ, name+"="+value)
	}
	kept, _ := slurm.Scrub(environ)
	slices.Sort(kept)
	want := []string{"HOSTNAME=" + env["HOSTNAME"], "HOSTNAME_CMD=" + env["HOSTNAME_CMD"], "SLURM_CONF=" + env["SLURM_CONF"], "TMPDIR=/tmp"}
	if !slices.Equal(kept, want) {
		t.Errorf("kept %q, want %q", kept, want)
	}
}
