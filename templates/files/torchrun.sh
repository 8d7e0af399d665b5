#!/bin/bash
# Starts torchrun on one node: bash torchrun.sh RANKS-PER-NODE SCRIPT [ARGUMENT...]
#
# ddpbatch starts this once on each node, so WORLD_SIZE is the number of nodes here, and RANK the node's. Rank 0's torchrun listens at
# MASTER_ADDR:MASTER_PORT, which nobody else has, and torchrun gives its own workers ranks of their own.
# (Its flags have an underscore, as versions before 2.0 know no others.)

if [ $# -lt 2 ]; then
  echo "usage: torchrun.sh RANKS-PER-NODE SCRIPT [ARGUMENT...]" >&2
  exit 2
fi
nproc=$1
shift

# One worker for the whole node got all of its cores for threads; its ranks share them.
threads=$((${OMP_NUM_THREADS:-1} / nproc))
export OMP_NUM_THREADS=$((threads > 0 ? threads : 1))

told=
trap 'told=yes' TERM # torchrun gets it, too, and hands it on; this script stays to tell how that ended
python3 -m torch.distributed.run --nnodes "$WORLD_SIZE" --node_rank "$RANK" --nproc_per_node "$nproc" \
  --master_addr "$MASTER_ADDR" --master_port "$MASTER_PORT" --max_restarts 0 "$@"
code=$?

# torchrun ends with 1 whatever code its workers ended with. Where they were told to stop, that is 75: saved, please start me again. Should one
# have failed just then, it fails again, and after some starts without progress ddpbatch gives the run up.
if [ "$code" -ne 0 ] && { [ -n "$told" ] || [ -e "${DDPBATCH_STOP_FILE:-/nonexistent}" ]; }; then
  exit 75
fi
exit "$code"
