# Runs in one machine: ranks over verbs. With SMOKE=1, only the shortest check that it works.
. lib.sh

train() { ddpbatch simulate "$1.toml"; }

job 30 tcp tcp
check "training over TCP" train tcp
for tls in rc_v ud_v; do
  export UCX_TLS=$tls
  job 30 ucx $tls
  check "$tls: training, the same parameters as over TCP" eval "by_verbs 60 train $tls && same tcp $tls"
  check "$tls: all-reduce, every element checked" by_verbs 500 ddpbatch bench allreduce -n 2 --transport ucx -b 4 -e 4M -f 16
  [ -z "$SMOKE" ] || break
done
[ -n "$SMOKE" ] && exit $failed

for tls in rc_v ud_v; do
  export UCX_TLS=$tls
  check "$tls: links, and the stale-memory check" ucx.test -test.v
  check "$tls: every collective" by_verbs 5000 mpi.test -test.run 'TestConformanceOfEveryCollective'
  check "$tls: with buffers of Alloc" by_verbs 500 ddpbatch bench allreduce -n 2 --transport ucx --alloc -b 64K -e 1M -f 4
  check "$tls: dead ranks" by_verbs 500 mpi.test -test.run '^TestDeaths'
done
unset UCX_TLS

# half a run, and the rest from its checkpoint
resumed() {
  job 10 ucx half && train half && says 'going on after step 10' ddpbatch resume runs/half-2* --set train.max_steps=30 && same tcp half
}
check "a checkpoint and a resume" resumed

# what goes wrong
check "locked memory too small" fails_with 1 'ulimit -l' locked_64K ddpbatch bench allreduce -n 2 --transport ucx
find /lib /usr/lib -name libucp.so.0 -exec mv {} /tmp/ ';'
check "no library" fails_with 1 'libucp.so.0: no such library' ddpbatch bench allreduce -n 2 --transport ucx
mv /tmp/libucp.so.0 /usr/lib/x86_64-linux-gnu/
ip link set d0 down
check "a device that is down" fails_with 1 'rxe0:1 is not active' ddpbatch bench allreduce -n 2 --transport ucx
rdma link delete rxe0
check "no device" fails_with 1 'no InfiniBand or RoCE device' ddpbatch bench allreduce -n 2 --transport ucx
exit $failed
