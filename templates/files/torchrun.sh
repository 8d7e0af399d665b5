#!/bin/bash
# Starts torchrun on one node: bash torchrun.sh RANKS-PER-NODE SCRIPT [ARGUMENT...]
#
# ddpbatch starts this once on each node, so here WORLD_SIZE is the number of nodes, and RANK is the node's number. Rank 0's torchrun listens
# at MASTER_ADDR:MASTER_PORT, which no other job uses, and torchrun gives its own workers ranks of their own.
# (The flags are written with an underscore, the only form that versions before 2.0 accept.)

if [ $# -lt 2 ]; then
  echo "usage: torchrun.sh RANKS-PER-NODE SCRIPT [ARGUMENT...]" >&2
  exit 2
fi
nproc=$1
shift

# ddpbatch sets OMP_NUM_THREADS for one worker that has all of the node's cores; the ranks share them.
threads=$((${OMP_NUM_THREADS:-1} / nproc))
export OMP_NUM_THREADS=$((threads > 0 ? threads : 1))

told=
trap 'told=yes' TERM # torchrun gets TERM, too, and passes it on; this script waits to report how torchrun ended
python3 -m torch.distributed.run --nnodes "$WORLD_SIZE" --node_rank "$RANK" --nproc_per_node "$nproc" \
  --master_addr "$MASTER_ADDR" --master_port "$MASTER_PORT" --max_restarts 0 "$@"
code=$?

# torchrun exits with 1 whatever exit code its workers had. If they were told to stop, their code is 75: saved, please start me again. If one
# failed just then, it will fail again, and after some starts without progress ddpbatch gives the run up.
if [ "$code" -ne 0 ] && { [ -n "$told" ] || [ -e "${DDPBATCH_STOP_FILE:-/nonexistent}" ]; }; then
  exit 75
fi
exit "$code"
