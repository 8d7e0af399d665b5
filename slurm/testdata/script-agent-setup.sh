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
# The batch script of the ddpbatch run 'it'\''s #1'. The command to run is in spec.json in the
# run directory, not in this script. To submit the run again, into the same run directory, so
# that it goes on from its newest checkpoint:
#
#   ddpbatch resume '/scratch/ann b/100%/"runs"/x'
#
# shellcheck disable=SC1090,SC1091,SC2015,SC2153  # sourced files are on the nodes; "a && b || c" is on purpose; two names differ only in case

ddpbatch_program='/scratch/ann b/100%/"runs"/x/bin/ddpbatch'
ddpbatch_run_dir='/scratch/ann b/100%/"runs"/x'

# From here on signals do not end this script: it passes those that came to "attempt end". A trap only sets a variable of its own and
# makes a file, without starting a process: bash 5.2 can crash on more, and runs traps inside each other. USR1 and USR2 are the warning that
# the end is near. If an attempt has begun, a file beside its stop file passes the warning on to agent 0, which knows whether Slurm is early
# and warns the workers. ("true", as ":" ends a shell in POSIX mode if the file cannot be made.)
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

# Nobody else may be able to change what is run. The run directory is closed to other users, but they could replace it if they can write to
# the folder around it and that has no sticky bit. A signal that is meant for this script may end find.
ddpbatch_check() {
  for ddpbatch_try in 1 2 3; do
    ddpbatch_bad=$(find "${ddpbatch_run_dir%/*}/." "$ddpbatch_run_dir" "$ddpbatch_run_dir/spec.json" "$ddpbatch_program" -prune \
      ! \( -name . \( -user 0 -o -user "$EUID" \) \( -perm -1000 -o ! -perm -020 ! -perm -002 \) \) \
      ! \( ! -name . -user "$EUID" ! -type l ! -perm -020 ! -perm -002 \) -print)
    ddpbatch_code=$?
    [ "$ddpbatch_code" -gt 128 ] || break
  done
  if [ -n "$ddpbatch_bad" ]; then
    printf 'ddpbatch: nothing is run, as another user might have changed it: %s must belong to you, and other users must not be able to write to it (chmod go-w)\n' \
      "$ddpbatch_bad" >&2
  elif [ "$ddpbatch_code" -ne 0 ]; then
    printf 'ddpbatch: nothing is run: find could not determine the owner of %s (exit code %s)\n' "$ddpbatch_run_dir" "$ddpbatch_code" >&2
  else
    return 0
  fi
  exit 2
}

# Claims the next attempt in the run directory, and sets the variables of the attempt and its secret. Exit codes above 128 mean that a signal
# ended the program before it could catch signals.
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

# "attempt end" decides how the run ended and whether Slurm starts it again, from the run's verdict or, if there is none, from srun's exit
# code and the signals that came. Slurm repeats signals. The program prints "heard" once they cannot end it any more; if one ended it before
# that, it is called again.
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

# The setup has failed: this claims an attempt that records it. A command that fails when Slurm ends the job may have failed because of that.
# Text that may contain a secret is printed only by "attempt end", which hides the secret. It gets the text by the environment, as everybody
# can see command lines.
ddpbatch_fail() {
  { set +aeux; } 2>/dev/null
  ddpbatch_leave
  trap - ERR DEBUG RETURN
  if [ ! -x "$ddpbatch_program" ]; then
    printf 'ddpbatch: %s does not exist on %s: the run directory must be on a file system that all nodes share\n' \
      "$ddpbatch_program" "$HOSTNAME" >&2
    exit 1
  fi
  case ${*^^} in *KEY* | *TOKEN* | *SECRET* | *PASSWORD* | *CREDENTIAL*) ;; *) printf 'ddpbatch: %s\n' "$*" >&2 ;; esac
  ddpbatch_begin
  [ -z "$ddpbatch_term" ] || ddpbatch_end 143 --unstarted
  export DDPBATCH_SETUP_FAILURE="$*"
  ddpbatch_end 1
}

# Setup that ends the shell has failed, too: "exit 1", or a variable that is not set under "set -u". The user's own trap on EXIT stays.
ddpbatch_leave() { case $(trap -p EXIT) in *ddpbatch_fail*) trap - EXIT ;; esac; }
trap 'ddpbatch_code=$?; [ "$ddpbatch_code" -eq 0 ] || ddpbatch_fail "[setup] ended the batch script with exit code $ddpbatch_code"' EXIT

# Modules. "module" is a shell function, which a batch shell may lack.
for ddpbatch_file in /etc/profile.d/modules.sh /etc/profile.d/lmod.sh /etc/profile.d/z00_lmod.sh; do
  type module >/dev/null 2>&1 && break
  [ -r "$ddpbatch_file" ] && . "$ddpbatch_file"
done
type module >/dev/null 2>&1 ||
  ddpbatch_fail 'no "module" command on this node: leave setup.modules out, and in setup.script write "source /etc/profile.d/NAME.sh", then "module load"'
module load python/3.8 ||
  ddpbatch_fail 'cannot load the module' python/3.8 '(setup.modules); "module avail" lists the modules'
module load 'cuda 11' ||
  ddpbatch_fail 'cannot load the module' 'cuda 11' '(setup.modules); "module avail" lists the modules'

# Python's virtual environment.
[ -r "$HOME"'/my venv/bin/activate' ] ||
  ddpbatch_fail 'cannot read' "$HOME"'/my venv/bin/activate' '(setup.venv) on this node: is the path right, and on a file system that the nodes share?'
. "$HOME"'/my venv/bin/activate' ||
  ddpbatch_fail 'cannot activate the virtual environment: error in' "$HOME"'/my venv/bin/activate'

# The user's own lines ([setup] script). A command that fails ends the job; one inside a
# file that they source does not. Write "|| true" after a command that may fail.
ddpbatch_why=
trap 'ddpbatch_code=$?
case "$ddpbatch_code $BASH_COMMAND" in
  "127 module "*) ddpbatch_why=": no \"module\" command on this node: write \"source /etc/profile.d/NAME.sh\" before it" ;;
  *) ddpbatch_why= ;;
esac
[ "${#BASH_SOURCE[@]}" -gt 1 ] || ddpbatch_fail "setup.script: exit code $ddpbatch_code from: $BASH_COMMAND$ddpbatch_why"' ERR
source env.sh
if true; then
  export A='{{.Name}}'
fi

# Undoes what the setup may have switched on: -x would print the run's secret, as a DEBUG trap may, -a would export it too early, -e would end
# the script before it can report how the run ended, and traps of the setup would keep signals from this script. A trap on EXIT stays.
{ set +aeux; } 2>/dev/null
trap - ERR DEBUG RETURN
ddpbatch_leave
ddpbatch_listen

[ -x "$ddpbatch_program" ] || ddpbatch_fail

# With PMI-2 the agents tell each other where to meet, so they do not need a port that is known beforehand.
ddpbatch_mpi=none
case $(srun --mpi=list 2>&1) in *pmi2*) ddpbatch_mpi=pmi2 ;; esac

ddpbatch_begin

# srun's options say how many cores it uses. The number that sbatch was asked for would limit the step, and look like a worker's own.
unset SLURM_CPUS_PER_TASK "${!SLURM_CPUS_PER_TASK_@}" # also those of a heterogeneous job's components
# SLURM_TRES_PER_TASK may be "cpu=4,gres/gpu=1": the GPUs stay.
ddpbatch_tres=,${SLURM_TRES_PER_TASK-}
case $ddpbatch_tres in *,cpu[=:]*)
  ddpbatch_rest=${ddpbatch_tres#*,cpu[=:]}
  ddpbatch_tres=${ddpbatch_tres%%,cpu[=:]*}${ddpbatch_rest#"${ddpbatch_rest%%,*}"}
  SLURM_TRES_PER_TASK=${ddpbatch_tres#,}
  [ -n "$SLURM_TRES_PER_TASK" ] || unset SLURM_TRES_PER_TASK ;;
esac

# A job that was told to end does not begin its work. One that was warned has too little time left, and asks to be started again.
[ -z "$ddpbatch_hup$ddpbatch_int$ddpbatch_quit$ddpbatch_term" ] || ddpbatch_end 143 --unstarted
[ -z "$ddpbatch_usr1$ddpbatch_usr2" ] || ddpbatch_end 75 --unstarted

# A signal interrupts "wait", so this calls it until srun itself has ended.
srun --nodes=3 --ntasks=3 --ntasks-per-node=1 --cpus-per-task=24 --kill-on-bad-exit=1 --wait=60 --cpu-bind=none --mpi=${ddpbatch_mpi:-none} --export=ALL \
  "$ddpbatch_program" run &
ddpbatch_pid=$!
while :; do
  wait "$ddpbatch_pid"
  ddpbatch_code=$?
  [ "$ddpbatch_code" -gt 128 ] && kill -0 "$ddpbatch_pid" 2>/dev/null || break
done
# That code may be of a signal that came as srun ended. Bash has kept srun's own code, except in POSIX mode, in which it returns it only once
# (127), and in a race of its own, in which it loses it (-1).
wait "$ddpbatch_pid" 2>/dev/null
ddpbatch_again=$?
[ "$ddpbatch_again" -lt 0 ] || [ "$ddpbatch_again" -eq 127 ] || ddpbatch_code=$ddpbatch_again
ddpbatch_end "$ddpbatch_code"
