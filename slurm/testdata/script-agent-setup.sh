#!/bin/bash
#SBATCH --job-name="it's #1"
#SBATCH --output="/scratch/ann b/100%%/\"runs\"/x/slurm-%A_%a.log"
#SBATCH --open-mode=append
#SBATCH --chdir="/home/ann/$HOME"
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=24
#SBATCH --array=1-10%2
#SBATCH --exclusive
#SBATCH --comment="say \"hi\" #2 \\ $(reboot)"
#SBATCH --site-note="a b"
#SBATCH "-x n1"
#
# The batch script of the ddpbatch run 'it'\''s #1'. Everything that is to run stands in
# spec.json in the run directory; nothing of it is in here. To submit it again, into the
# same run directory, so that it goes on from its newest checkpoint:
#
#   ddpbatch resume '/scratch/ann b/100%/"runs"/x'

ddpbatch_fail() {
  printf 'ddpbatch: %s\n' "$*" >&2
  exit 1
}

# Modules. "module" is a shell function, which a batch shell need not have.
for ddpbatch_file in /etc/profile.d/modules.sh /etc/profile.d/lmod.sh /etc/profile.d/z00_lmod.sh; do
  type module >/dev/null 2>&1 && break
  [ -r "$ddpbatch_file" ] && . "$ddpbatch_file"
done
type module >/dev/null 2>&1 ||
  ddpbatch_fail 'there is no "module" command on this node: take modules out of [setup], or define it in script'
module load python/3.8 ||
  ddpbatch_fail 'cannot load the module' python/3.8 '(setup.modules); "module avail" lists what there is'
module load 'cuda 11' ||
  ddpbatch_fail 'cannot load the module' 'cuda 11' '(setup.modules); "module avail" lists what there is'

# Python's virtual environment.
[ -r "$HOME"'/my venv/bin/activate' ] ||
  ddpbatch_fail 'cannot read' "$HOME"'/my venv/bin/activate' '(setup.venv) on this node'
. "$HOME"'/my venv/bin/activate' ||
  ddpbatch_fail 'cannot activate the virtual environment: error in' "$HOME"'/my venv/bin/activate'

# The user's own lines ([setup] script). A command that fails ends the job; one inside a
# file that they source does not. Write "|| true" after a command that may fail.
trap 'ddpbatch_code=$?; [ "${#BASH_SOURCE[@]}" -gt 1 ] ||
  ddpbatch_fail "setup.script: exit code $ddpbatch_code from: $BASH_COMMAND"' ERR
source env.sh
if true; then
  export A='{{.Name}}'
fi
trap - ERR

# Whatever the setup has switched on: -x would print the run's secret, -a would export it
# before its time, -e would end the script before it can tell how the run ended.
{ set +aeux; } 2>/dev/null

ddpbatch='/scratch/ann b/100%/"runs"/x/bin/ddpbatch'
run_dir='/scratch/ann b/100%/"runs"/x'
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
srun --nodes=3 --ntasks=3 --ntasks-per-node=1 --cpus-per-task=24 --cpu-bind=none --kill-on-bad-exit=1 --mpi=none --export=ALL \
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
