# Runs in each of two machines, joined by a cable: ranks over verbs, and what happens when the cable or the other machine fails.
. lib.sh
other=10.9.0.2; [ "$ROLE" = a ] || other=10.9.0.1
node=0; [ "$ROLE" = a ] || node=1

until ping -c 1 -W 1 $other >/dev/null; do :; done

# on_both CMD...: runs an agent on each machine, with RANKS ranks each (default 1)
echo 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff >key; chmod 600 key
export DDPBATCH_SECRET_FILE=$PWD/key
port=29500
on_both() {
  port=$((port + 10))
  ddpbatch run --nnodes 2 --node-rank $node --nproc-per-node "${RANKS:-1}" --master-addr 10.9.0.1 --master-port $port "$@"
}
train() { on_both -- ddpbatch train "$1.toml"; }

# all_reduces: runs all-reduces until they are ended
all_reduces() { on_both -- sh -c 'echo $$ >rank.pid; exec ddpbatch bench allreduce -b 1K -e 1K -f 2 --budget 120s'; }
# under_way: waits until they run, according to the device's counter, at most a minute
under_way() {
  begun=$(($(counter rdma_sends) + 300)) looks=0
  until [ "$(counter rdma_sends)" -gt $begun ] || [ $looks = 300 ]; do sleep 0.2; looks=$((looks + 1)); done
}

RUNS=/shared/runs
job 20 tcp tcp
check "training over TCP" train tcp
same_as_tcp() { [ "$ROLE" = b ] || same tcp "$1"; } # rank 0 exports
job 20 auto auto
check "training, the same parameters as over TCP; auto takes verbs" eval 'by_verbs 40 train auto && same_as_tcp auto'
check "the checkpoint of both is whole" eval '[ "$ROLE" = b ] || ddpbatch ckpt verify /shared/runs/auto-2*'

# half a run, and the rest from its checkpoint
resumed() {
  job 10 auto half
  said=; [ "$ROLE" = b ] || said='going on after step 10'
  train half && says "$said" on_both -- ddpbatch resume /shared/runs/half-2* --set train.max_steps=20 && same_as_tcp half
}
check "a checkpoint and a resume" resumed

# conform TRANSPORT: every collective, as processes of mpi's tests
conform() { MPI_TEST_SCENARIO=conform MPI_TEST_TRANSPORT=$1 MPI_TEST_TIMEOUT=60s on_both -- mpi.test; }
for tls in rc_v ud_v; do
  export UCX_TLS=$tls
  job 20 ucx $tls
  check "$tls: training, the same parameters as over TCP" eval "by_verbs 40 train $tls && same_as_tcp $tls"
  check "$tls: all-reduce, every element checked" by_verbs 500 on_both -- ddpbatch bench allreduce -b 4 -e 1M -f 16
  check "$tls: every collective" by_verbs 200 conform ucx
  RANKS=2 check "$tls: every collective, with two ranks on each machine that share memory" by_verbs 200 conform auto
done
unset UCX_TLS

# the cable is unplugged for 3 seconds during all-reduces, which must continue
pulled() {
  [ "$ROLE" = a ] || { (under_way; echo CABLE out >/dev/console; sleep 3; echo CABLE in >/dev/console) & }
  by_verbs 500 on_both -- ddpbatch bench allreduce -b 1K -e 1K -f 2 --budget 15s || return 1
  wait
}
check "the cable is pulled and put back" pulled

# b's interface is down for 3 seconds, so that its card rejects messages: the job may fail, but must end soon
refused() {
  [ "$ROLE" = a ] || { (under_way; ip link set eth0 down; sleep 3; ip link set eth0 up) & }
  start=$(cut -d. -f1 /proc/uptime)
  on_both -- ddpbatch bench allreduce -b 1K -e 1K -f 2 --budget 15s
  echo "exit code $?"
  wait
  [ $(($(cut -d. -f1 /proc/uptime) - start)) -lt 60 ]
}
check "an interface goes down" refused

# gone HOW LIMIT: b's rank, or all of b, ends while both work. a's part of the job must end within LIMIT seconds after b says so.
gone() {
  how=$1 limit=$2
  if [ "$ROLE" = b ]; then
    (under_way; echo now | nc 10.9.0.1 4000; $how) &
    all_reduces
    wait
    return 0
  fi
  echo 0 >gone.at
  (nc -l -p 4000 >/dev/null; cut -d. -f1 /proc/uptime >gone.at) &
  all_reduces >/tmp/said 2>&1 && { echo "the all-reduces went on without b"; return 1; }
  took=$(($(cut -d. -f1 /proc/uptime) - $(cat gone.at)))
  cat /tmp/said
  echo "SAY it took $took s"
  [ $took -le "$limit" ]
}
kill_rank() { kill -KILL "$(cat rank.pid)"; }
power_off() { # nothing is sent any more
  echo "SCRIPT ended with $failed" >/dev/console
  echo o >/proc/sysrq-trigger
}
check "a dead rank is known within 5 s" gone kill_rank 5

# locked memory is too small on b alone: TCP for both, and a sentence of which rank, and why
few() {
  said= how=locked_64K; [ "$ROLE" = b ] || said='not through UCX.*rank=1.*ulimit -l' how=
  says "$said" on_both -- $how ddpbatch bench allreduce -b 1K -e 1K -f 2
}
check "locked memory too small on one" few
nodevice() {
  [ "$ROLE" = a ] || rdma link delete rxe0
  said=; [ "$ROLE" = b ] || said='not through UCX.*rank=1.*no InfiniBand or RoCE device'
  says "$said" on_both -- ddpbatch bench allreduce -b 1K -e 1K -f 2
}
check "one rank without a device" nodevice
[ "$ROLE" = a ] || rdma link add rxe0 type rxe netdev eth0

check "a machine without power is known within 15 s" gone power_off 15
exit $failed
