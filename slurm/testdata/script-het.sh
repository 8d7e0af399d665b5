#!/bin/bash
#SBATCH --job-name=het
#SBATCH --output="/home/ann b/runs/het/slurm-%j.log"
#SBATCH --open-mode=append
#SBATCH --chdir=/home/ann
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=2
#SBATCH --requeue
#SBATCH --signal=B:USR2@60
#SBATCH --gpus-per-node=2
#SBATCH --time=10
#SBATCH --switches=1
#SBATCH hetjob
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --constraint="a b"
#SBATCH hetjob
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#
# The batch script of the ddpbatch run het. Everything that is to run stands in
# spec.json in the run directory; nothing of it is in here. To submit it again, into the
# same run directory, so that it goes on from its newest checkpoint:
#
#   ddpbatch resume '/home/ann b/runs/het'
#
# shellcheck disable=SC1090,SC1091,SC2015,SC2153  # what it sources is on the nodes; "a && b || c" is meant; two names differ in case alone

ddpbatch_program='/home/ann b/runs/het/bin/ddpbatch'
ddpbatch_run_dir='/home/ann b/runs/het'

# From here on no signal ends this script: it tells "attempt end" of those that came. A trap does nothing but set a variable of its own
# and make a file, without a process: bash 5.2 can crash on more, and runs traps inside of each other. USR1 and USR2 are the warning that
# the end is near: a file beside the stop file, where there is an attempt, hands it on to agent 0, which knows whether Slurm is early, and it
# to the workers. ("true" and not ":", which ends a shell in POSIX mode where the file cannot be made.)
unset DDPBATCH_STOP_FILE DDPBATCH_SETUP_FAILURE
ddpbatch_hup='' ddpbatch_int='' ddpbatch_quit='' ddpbatch_term='' ddpbatch_usr1='' ddpbatch_usr2=''
ddpbatch_listen() {
  trap 'ddpbatch_hup=HUP' HUP
  trap 'ddpbatch_int=INT' INT
  trap 'ddpbatch_quit=QUIT' QUIT
  trap 'ddpbatch_term=TERM' TERM
  trap 'ddpbatch_usr1=USR1; [ -z "${DDPBATCH_STOP_FILE-}" ] || true >|"${DDPBATCH_STOP_FILE%/*}/signal" || true' USR1
  trap 'ddpbatch_usr2=USR2; [ -z "${DDPBATCH_STOP_FILE-}" ] || true >|"${DDPBATCH_STOP_FILE%/*}/signal" || true' USR2
}
ddpbatch_listen

# Nobody else may be able to change what is run. The run directory is closed to others, so that they could only put another in its place: that
# takes the right to write to the folder around it, and no sticky bit. find may be hit by a signal that is for this script.
ddpbatch_check() {
  for ddpbatch_try in 1 2 3; do
    ddpbatch_bad=$(find "${ddpbatch_run_dir%/*}/." "$ddpbatch_run_dir" "$ddpbatch_run_dir/spec.json" "$ddpbatch_program" -prune \
      ! \( -name . \( -user 0 -o -user "$EUID" \) \( -perm -1000 -o ! -perm -020 ! -perm -002 \) \) \
      ! \( ! -name . -user "$EUID" ! -type l ! -perm -020 ! -perm -002 \) -print)
    ddpbatch_code=$?
    [ "$ddpbatch_code" -gt 128 ] || break
  done
  if [ -n "$ddpbatch_bad" ]; then
    printf 'ddpbatch: nothing is run, as another user might have changed it: %s must belong to you, and others must not write to it (chmod go-w)\n' \
      "$ddpbatch_bad" >&2
  elif [ "$ddpbatch_code" -ne 0 ]; then
    printf 'ddpbatch: nothing is run: find could not tell whose %s is (exit code %s)\n' "$ddpbatch_run_dir" "$ddpbatch_code" >&2
  else
    return 0
  fi
  exit 2
}

# Claims the next attempt in the run directory, and names it and its secret to the environment. Codes above 128 are those of a signal
# that came before the program could catch it.
ddpbatch_begin() {
  ddpbatch_check
  ddpbatch_try=1
  until ddpbatch_attempt=$("$ddpbatch_program" attempt begin "$ddpbatch_run_dir"); do
    ddpbatch_code=$?
    [ "$ddpbatch_code" -gt 128 ] && [ "$ddpbatch_try" -lt 3 ] || exit "$ddpbatch_code"
    ddpbatch_try=$((ddpbatch_try + 1))
  done
  eval "$ddpbatch_attempt"
  unset ddpbatch_attempt
}

# How the run ended, and whether Slurm is to start it again, is decided from its verdict and, where there is none, from srun's code and
# the signals that came. Slurm repeats them. The program says "heard" once none can end it any more; one that came before that did, and
# it is called again.
ddpbatch_end() {
  trap '' HUP INT QUIT TERM USR1 USR2
  for ddpbatch_try in 1 2 3; do
    ddpbatch_heard=$("$ddpbatch_program" attempt end --code "$1" \
      --signals "$ddpbatch_hup $ddpbatch_int $ddpbatch_quit $ddpbatch_term $ddpbatch_usr1 $ddpbatch_usr2" "${@:2}" "$DDPBATCH_RUN_DIR")
    ddpbatch_code=$?
    [ "$ddpbatch_code" -gt 128 ] && [ -z "$ddpbatch_heard" ] || break
  done
  exit "$ddpbatch_code"
}

# The setup has failed: an attempt that tells of it. A command that fails when Slurm ends the job may have failed of that. What may show a
# secret only "attempt end" prints, which blanks it; it gets it by the environment, as command lines are there for all to see.
ddpbatch_fail() {
  { set +aeux; } 2>/dev/null
  ddpbatch_leave
  trap - ERR DEBUG RETURN
  if [ ! -x "$ddpbatch_program" ]; then
    printf 'ddpbatch: %s is not there on %s: the run directory must be on a file system that all nodes share\n' \
      "$ddpbatch_program" "$HOSTNAME" >&2
    exit 1
  fi
  case ${*^^} in *KEY* | *TOKEN* | *SECRET* | *PASSWORD* | *CREDENTIAL*) ;; *) printf 'ddpbatch: %s\n' "$*" >&2 ;; esac
  ddpbatch_begin
  [ -z "$ddpbatch_term" ] || ddpbatch_end 143 --unstarted
  export DDPBATCH_SETUP_FAILURE="$*"
  ddpbatch_end 1
}

# Setup that ends the shell has failed, too: "exit 1", or a variable that is not set under "set -u". A trap of the user's own on EXIT stays.
ddpbatch_leave() { case $(trap -p EXIT) in *ddpbatch_fail*) trap - EXIT ;; esac; }
trap 'ddpbatch_code=$?; [ "$ddpbatch_code" -eq 0 ] || ddpbatch_fail "[setup] ended the batch script with exit code $ddpbatch_code"' EXIT

# Whatever the setup has switched on: -x would print the run's secret, as a DEBUG trap may, -a would export it before its time, -e would end
# the script before it can tell how the run ended, and traps of its own would keep signals from it. One on EXIT stays.
{ set +aeux; } 2>/dev/null
trap - ERR DEBUG RETURN
ddpbatch_leave
ddpbatch_listen

[ -x "$ddpbatch_program" ] || ddpbatch_fail

# With PMI-2 the agents tell each other where to meet, and need no port that is known beforehand.
ddpbatch_mpi=none
case $(srun --mpi=list 2>&1) in *pmi2*) ddpbatch_mpi=pmi2 ;; esac

ddpbatch_begin

# srun is told all that it is to know of cores. What sbatch was asked for would limit the step to it, and pass for a worker's own.
unset SLURM_CPUS_PER_TASK "${!SLURM_CPUS_PER_TASK_@}" # those of a heterogeneous job's components, too
# SLURM_TRES_PER_TASK may be "cpu=4,gres/gpu=1": the GPUs stay.
ddpbatch_tres=,${SLURM_TRES_PER_TASK-}
case $ddpbatch_tres in *,cpu[=:]*)
  ddpbatch_rest=${ddpbatch_tres#*,cpu[=:]}
  ddpbatch_tres=${ddpbatch_tres%%,cpu[=:]*}${ddpbatch_rest#"${ddpbatch_rest%%,*}"}
  SLURM_TRES_PER_TASK=${ddpbatch_tres#,}
  [ -n "$SLURM_TRES_PER_TASK" ] || unset SLURM_TRES_PER_TASK ;;
esac

# What was told to end is not begun; what was warned has no time to get anywhere, and asks to be started again.
[ -z "$ddpbatch_hup$ddpbatch_int$ddpbatch_quit$ddpbatch_term" ] || ddpbatch_end 143 --unstarted
[ -z "$ddpbatch_usr1$ddpbatch_usr2" ] || ddpbatch_end 75 --unstarted

# A signal interrupts "wait", so that it is called until srun itself has ended.
srun --het-group=0 --nodes=1 --ntasks=1 --ntasks-per-node=1 --kill-on-bad-exit=1 --wait=60 --cpu-bind=none --mpi=${ddpbatch_mpi:-none} --export=ALL '/home/ann b/runs/het/bin/ddpbatch' run : --het-group=1 --nodes=4 --ntasks=4 --ntasks-per-node=1 --cpus-per-task=16 --kill-on-bad-exit=1 --wait=60 --cpu-bind=none --mpi=${ddpbatch_mpi:-none} --export=ALL '/home/ann b/runs/het/bin/ddpbatch' run : --het-group=2 --nodes=1 --ntasks=1 --ntasks-per-node=1 --kill-on-bad-exit=1 --wait=60 --cpu-bind=none --mpi=${ddpbatch_mpi:-none} --export=ALL \
  "$ddpbatch_program" run &
ddpbatch_pid=$!
while :; do
  wait "$ddpbatch_pid"
  ddpbatch_code=$?
  [ "$ddpbatch_code" -gt 128 ] && kill -0 "$ddpbatch_pid" 2>/dev/null || break
done
# That code may be of a signal that came with srun's end. Bash has kept srun's own, but for POSIX mode, where it tells it once (127), and a
# race of its own, in which it loses it (-1).
wait "$ddpbatch_pid" 2>/dev/null
ddpbatch_again=$?
[ "$ddpbatch_again" -lt 0 ] || [ "$ddpbatch_again" -eq 127 ] || ddpbatch_code=$ddpbatch_again
ddpbatch_end "$ddpbatch_code"
