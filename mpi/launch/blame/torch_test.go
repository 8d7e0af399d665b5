package blame

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ddpbatch/internal/testkit/torch"
)

// torchAgents are small agents in Python, one after another, forked from a process that has imported PyTorch already, as their three ranks
// are. Each tells the others to stop with TERM once one has ended badly, as our agents do, and leaves the deaths in a file. Its arguments
// are a folder, and the ways in which rank 2 ends; each has its files in a folder of its name.
const torchAgents = `
import gc, json, os, signal, socket, sys, time
import torch, torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

ranks = 3
gc.freeze()  # a collection would copy the memory that forked processes share
for how in sys.argv[2:]:
    folder = os.path.join(sys.argv[1], how)
    os.mkdir(folder, 0o700)
    if os.fork() == 0:
        break
    if os.wait()[1]:
        sys.exit("the agent of %s failed" % how)
else:
    sys.exit(0)
with socket.socket() as s:
    s.bind(("127.0.0.1", 0))
    port = s.getsockname()[1]

stopped = []

def until_told():
    # another rank has ended by then, of having lost this one
    deadline = time.monotonic() + 20
    while not stopped and time.monotonic() < deadline:
        time.sleep(0.01)

def train():
    dist.init_process_group("gloo")
    x = torch.ones(4)
    for step in range(2000):
        dist.all_reduce(x)
        print("step", step, flush=True)
        if step == 3 and dist.get_rank() == 2:
            end(x)
        time.sleep(0.01)

def end(x):
    if how == "oom":
        torch.empty(1 << 60)
    elif how == "slow":
        # connections go first, the interpreter later
        dist.destroy_process_group()
        raise ValueError("boom at step 3")
    elif how == "clean":
        try:
            raise KeyError("lr")
        finally:
            dist.destroy_process_group()
            until_told()
            dist.init_process_group("gloo", timeout=__import__("datetime").timedelta(seconds=1))
    else:
        raise ValueError("boom at step 3")

pids = {}
for rank in range(ranks):
    pid = os.fork()
    if pid:
        pids[pid] = rank
        continue
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
        TORCHELASTIC_ERROR_FILE=os.path.join(folder, "%d.json" % rank))
    for fd, name in (1, "out"), (2, "err"):
        os.dup2(os.open(os.path.join(folder, "%d.%s" % (rank, name)), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), fd)
    if how in ("slow", "clean") and rank == 2:
        signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    if how == "slow" and rank == 2:
        import atexit
        atexit.register(until_told)
    (train if how == "bare" else record(train))()
    sys.exit(0)

began, told, deaths = time.monotonic(), False, []
while pids:
    pid, status = os.wait()
    deaths.append(dict(rank=pids.pop(pid), host="n1", told=told, heard=int((time.monotonic() - began) * 1e9),
        exit=os.WEXITSTATUS(status) if os.WIFEXITED(status) else 0, signal=os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0))
    if status and not told:
        told = True
        for other in pids:
            os.kill(other, signal.SIGTERM)
with open(os.path.join(folder, "deaths"), "w") as f:
    json.dump(deaths, f)
os._exit(0)
`

// Real deaths of real PyTorch, with their real last words: whoever is heard of first, rank 2 is named, and what it died of is told.
// Signals and exit codes are cmd/ddpbatch's TestTorchFailure.
func TestRealPyTorch(t *testing.T) { // without the race detector
	cases := map[string]struct {
		says     string // in the report
		first    bool   // somebody else may be heard of first: the case has to be so to be one
		recorded bool   // in an error file
	}{
		"raise": {says: "  ValueError: boom at step 3\n", recorded: true},
		"bare":  {says: "  ValueError: boom at step 3\n"}, // no @record
		"slow":  {says: "  ValueError: boom at step 3\n", first: true, recorded: true},
		"clean": {says: "  which came from KeyError: 'lr'\n", first: true, recorded: true},
		"oom":   {says: "DefaultCPUAllocator: can't allocate", recorded: true},
	}
	dir := t.TempDir()
	torch.Run(t, torchAgents, append([]string{dir}, slices.Sorted(maps.Keys(cases))...)...)
	for how, want := range cases {
		t.Run(how, func(t *testing.T) {
			deaths := realDeaths(t, filepath.Join(dir, how))
			got := Choose(deaths)
			text := Report(deaths, got, "it ends")
			checkReport(t, text)
			t.Logf("report:\n%s", text)
			if got < 0 || deaths[got].Rank != 2 {
				t.Errorf("index %d is named of %+v", got, deaths)
			}
			if !strings.Contains(text, want.says) || !strings.Contains(text, "2 ranks followed: 0-1\n") {
				t.Error("the report does not say so")
			}
			if want.first && deaths[0].Rank == 2 {
				t.Error("rank 2 was heard of first: the case is none")
			}
			for _, d := range deaths {
				if d.OutOfMemory() != (how == "oom" && d.Rank == 2) {
					t.Errorf("rank %d: out of memory is %t", d.Rank, d.OutOfMemory())
				}
				if d.Rank == 2 && (d.ErrorFile != nil) != want.recorded {
					t.Errorf("error file: %+v", d.ErrorFile)
				}
			}
		})
	}
}

func realDeaths(t *testing.T, dir string) []Death {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "deaths"))
	must(t, err)
	var deaths []Death
	must(t, json.Unmarshal(text, &deaths))
	for i := range deaths {
		d := &deaths[i]
		path := filepath.Join(dir, string(rune('0'+d.Rank)))
		lines := func(suffix string) []string {
			text, err := os.ReadFile(path + suffix)
			must(t, err)
			return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
		}
		d.Tail = Words(lines(".err"), lines(".out"))
		var err error
		if d.ErrorFile, err = ReadErrorFile(path + ".json"); err != nil && !errors.Is(err, fs.ErrNotExist) && d.Rank == 2 { // the others may be told to end while they write theirs
			t.Error(err)
		}
	}
	return deaths
}
