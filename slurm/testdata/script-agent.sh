#!/bin/bash
#SBATCH --job-name=mnist
#SBATCH --output=/home/ann/runs/mnist-20260101-120000-ab12/slurm-%j.log
#SBATCH --open-mode=append
#SBATCH --chdir=/home/ann/train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --mincpus=4
#SBATCH --partition=gpu
#SBATCH --gpus-per-node=4
#SBATCH --time=01:00:00
#
# The batch script of the ddpbatch run mnist. Everything that is to run stands in
# spec.json in the run directory; nothing of it is in here. To submit it again, into the
# same run directory, so that it goes on from its newest checkpoint:
#
#   ddpbatch resume /home/ann/runs/mnist-20260101-120000-ab12

ddpbatch_fail() {
  printf 'ddpbatch: %s\n' "$*" >&2
  exit 1
}

# Whatever the setup has switched on: -x would print the run's secret, -a would export it
# before its time, -e would end the script before it can tell how the run ended.
{ set +aeux; } 2>/dev/null

ddpbatch=/home/ann/runs/mnist-20260101-120000-ab12/bin/ddpbatch
run_dir=/home/ann/runs/mnist-20260101-120000-ab12
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
srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --cpu-bind=none --kill-on-bad-exit=1 --mpi=none --export=ALL \
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
