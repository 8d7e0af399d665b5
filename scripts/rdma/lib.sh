# Shared by the scripts in the machines. For busybox's sh.

# Only for Soft-RoCE: GID 1 is that of the card's IPv4 address, and rxe does not set the field in which UCX looks for the kind of a packet.
export UCX_IB_GID_INDEX=1 UCX_UD_ETH_DGID_CHECK=n
export DDPBATCH_TEST_TRANSPORTS=ucx
failed=0

# check NAME CMD...: runs CMD, and shows its output if it fails.
check() {
  name=$1; shift
  began=$(cut -d. -f1 /proc/uptime)
  if "$@" >/tmp/out 2>&1; then verdict=PASS; else verdict=FAIL; failed=1; fi
  echo "$verdict $name ($(($(cut -d. -f1 /proc/uptime) - began)) s)"
  if [ $verdict = FAIL ]; then tail -40 /tmp/out; else grep '^    .*:.*messages were wrong\|^SAY ' /tmp/out; fi
}

# counter NAME: prints a counter of the device (hw_counters of rdma_rxe).
counter() { cat "/sys/class/infiniband/rxe0/ports/1/hw_counters/$1"; }

# by_verbs MESSAGES CMD...: runs CMD, which must send at least so many messages by verbs.
by_verbs() {
  least=$1; shift
  before=$(counter rdma_sends)
  "$@" || return 1
  sent=$(($(counter rdma_sends) - before))
  echo "SAY $sent sends by verbs"
  [ "$sent" -ge "$least" ] || { echo "$sent sends went by verbs, want $least at least"; return 1; }
}

# fails_with CODE TEXT CMD...: runs CMD, which must exit with CODE and print TEXT.
fails_with() {
  code=$1 text=$2; shift 2
  "$@" >/tmp/said 2>&1 && got=0 || got=$?
  cat /tmp/said
  [ "$got" = "$code" ] || { echo "exit code $got, want $code"; return 1; }
  grep -q "$text" /tmp/said || { echo "it does not say: $text"; return 1; }
}

# says TEXT CMD...: runs CMD, which must succeed and print TEXT, if that is not empty.
says() {
  text=$1; shift
  "$@" >/tmp/said 2>&1 || { cat /tmp/said; return 1; }
  cat /tmp/said
  [ -z "$text" ] || grep -q "$text" /tmp/said || { echo "it does not say: $text"; return 1; }
}

# locked_64K CMD...: runs CMD as a user who may lock 64 KiB of memory, because root may lock more than its limit
cat >/bin/locked_64K <<'EOF'
#!/bin/sh
chmod 666 /dev/infiniband/*
[ ! -e key ] || { cp key nobodys.key; chown nobody nobodys.key; export DDPBATCH_SECRET_FILE=$PWD/nobodys.key; }
ulimit -l 64
exec su -s /bin/sh -c 'exec "$@"' -- nobody sh "$@"
EOF
chmod +x /bin/locked_64K

# job STEPS TRANSPORT NAME: writes a job file NAME.toml for the built-in trainer, which exports its parameters to NAME.safetensors.
job() {
  cat >"$3.toml" <<EOF
schema = 1
name = "$3"
run_dir = "${RUNS:-runs}"
[launch]
nproc_per_node = 2
[mpi]
transport = "$2"
[train]
max_steps = $1
epochs = 100
batch_size = 16
loss = "mse"
model = { kind = "mlp", hidden = [384, 384] }
data = { kind = "generated" }
optimizer = { kind = "sgd", lr = 0.05, momentum = 0.9 }
export = "$3.safetensors"
[checkpoint]
every_steps = 10
EOF
}

# same NAME NAME: succeeds if the parameters are equal bit for bit.
same() { cmp "$1.safetensors" "$2.safetensors"; }
