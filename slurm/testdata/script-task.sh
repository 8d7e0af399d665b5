#!/bin/bash
#SBATCH --job-name=mpi
#SBATCH --output=/r/mpi/slurm-%j.log
#SBATCH --open-mode=append
#SBATCH --chdir=/r
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=2
#
# The batch script of the ddpbatch run mpi. Everything that is to run stands in
# spec.json in the run directory; nothing of it is in here. To submit it again, into the
# same run directory, so that it goes on from its newest checkpoint:
#
#   ddpbatch resume /r/mpi

ddpbatch_fail() {
  printf 'ddpbatch: %s\n' "$*" >&2
  exit 1
}

# The conda environment. "conda activate" needs conda's shell functions.
ddpbatch_hook=$("${CONDA_EXE:-conda}" shell.bash hook) ||
  ddpbatch_fail 'cannot run conda (setup.conda): load it in [setup] modules, or put it on the PATH'
eval "$ddpbatch_hook"
conda activate '/opt/envs/my env' ||
  ddpbatch_fail 'cannot activate the conda environment' '/opt/envs/my env' '(setup.conda); "conda env list" shows what there is'

# Whatever the setup has switched on: -x would print the run's secret, -a would export it
# before its time, -e would end the script before it can tell how the run ended.
{ set +aeux; } 2>/dev/null

ddpbatch=/r/mpi/bin/ddpbatch
run_dir=/r/mpi
[ -x "$ddpbatch" ] ||
  ddpbatch_fail "$ddpbatch is not there on $HOSTNAME: the run directory must be on a file system that all nodes share"

# Claims the next attempt in the run directory, and names it and its secret to the environment.
attempt=$("$ddpbatch" attempt begin "$run_dir") || exit $?
eval "$attempt"
unset attempt

# A trap does nothing but set a variable (bash 5.2 can crash on more), and the loop waits
# on until srun itself has ended: a signal only interrupts "wait".
signal=
trap 'signal=1' HUP INT QUIT TERM USR1 USR2
srun --nodes=2 --ntasks=16 --ntasks-per-node=8 --cpus-per-task=2 --kill-on-bad-exit=1 --mpi=none --export=ALL \
  "$ddpbatch" run &
pid=$!
while :; do
  signal=
  wait "$pid"
  code=$?
  [ -z "$signal" ] && break
done

# The run's verdict, or srun's code where there is none, becomes the job's exit code.
exec "$ddpbatch" attempt end --code "$code" "$DDPBATCH_RUN_DIR"
