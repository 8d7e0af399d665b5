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
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"ddpbatch/internal/testkit"
	"ddpbatch/internal/testkit/torch"
	"ddpbatch/internal/vfs"
)

func TestReadErrorFile(t *testing.T) {
	at := time.Unix(1795308385, 0)
	for name, tc := range map[string]struct {
		text string
		want TorchError
	}{
		"as @record writes it": {
			`{"message": {"message": "ValueError: boom", "extraInfo": {"py_callstack": "Traceback\n  x\n", "timestamp": "1795308385"}}}`,
			TorchError{Message: "ValueError: boom", Stack: "Traceback\n  x\n", Time: at},
		},
		"with an agent's code": {
			`{"message": {"message": "E: x", "extraInfo": {"py_callstack": "", "timestamp": "1795308385"}, "errorCode": -9}}`,
			TorchError{Message: "E: x", Time: at, Code: -9},
		},
		"a plain text":               {`{"message": "boom", "timestamp": 1795308385}`, TorchError{Message: "boom", Time: at}},
		"a plain text, nothing else": {`{"message": "boom"}`, TorchError{Message: "boom"}},
		"a time with a fraction": {`{"message": "boom", "timestamp": "1795308385.25"}`,
			TorchError{Message: "boom", Time: at.Add(250 * time.Millisecond)}},
		"a message that is not a text": {`{"message": {"message": [1, 2]}}`, TorchError{Message: "[1, 2]"}},
		"other things beside": {`{"x": [{}], "message": {"message": "m", "extraInfo": "none", "errorCode": "x"}}`,
			TorchError{Message: "m"}},
		"times that there cannot be":      {`{"message": "m", "timestamp": "NaN"}`, TorchError{Message: "m"}},
		"a time before all":               {`{"message": "m", "timestamp": -5}`, TorchError{Message: "m"}},
		"a time after all":                {`{"message": "m", "timestamp": 1e300}`, TorchError{Message: "m"}},
		"a code that is too large":        {`{"message": {"message": "m", "errorCode": 99999999999999999999}}`, TorchError{Message: "m"}},
		"an empty message":                {`{"message": ""}`, TorchError{}},
		"half a surrogate, and NUL bytes": {`{"message": "a\ud800b\u0000"}`, TorchError{Message: "a\ufffdb\x00"}},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "error.json")
			must(t, os.WriteFile(path, []byte(tc.text), 0o600))
			got, err := ReadErrorFile(path)
			must(t, err)
			if got.Message != tc.want.Message || got.Stack != tc.want.Stack || !got.Time.Equal(tc.want.Time) || got.Code != tc.want.Code {
				t.Errorf("got %+v, want %+v", *got, tc.want)
			}
		})
	}
}

func TestInvalidErrorFiles(t *testing.T) {
	dir := t.TempDir()
	for _, text := range []string{"{", "null", "[]", "7", `"x"`, "{}", `{"message": 7}`, `{"message": null}`, `{"message": []}`,
		`{"message": {"message": "cut`, "\x00\xff", strings.Repeat("[", 100000)} {
		path := filepath.Join(dir, "error.json")
		must(t, os.WriteFile(path, []byte(text), 0o600))
		if e, err := ReadErrorFile(path); err == nil || !strings.Contains(err.Error(), path) || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%.20q: %+v, %v", text, e, err)
		}
	}
	if _, err := ReadErrorFile(filepath.Join(dir, "nothing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	empty := filepath.Join(dir, "empty") // as an agent makes it for its worker
	must(t, os.WriteFile(empty, nil, 0o600))
	if _, err := ReadErrorFile(empty); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an empty file: %v", err)
	}
	if _, err := ReadErrorFile(dir); !errors.Is(err, vfs.ErrNotRegular) {
		t.Errorf("a folder: %v", err)
	}
	pipe := filepath.Join(dir, "pipe")
	must(t, syscall.Mkfifo(pipe, 0o600))
	if _, err := ReadErrorFile(pipe); !errors.Is(err, vfs.ErrNotRegular) { // without waiting for a writer
		t.Errorf("a pipe: %v", err)
	}
	long := filepath.Join(dir, "long")
	must(t, os.WriteFile(long, []byte(`{"message": "`+strings.Repeat("x", 2<<20)+`"}`), 0o600))
	if _, err := ReadErrorFile(long); err == nil || !strings.Contains(err.Error(), "longer") {
		t.Errorf("two MiB: %v", err)
	}
}

// An error file on which a file server holds a lease for one of its clients is read once the lease is released.
func TestErrorFileUnderLeaseIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "error.json")
	must(t, os.WriteFile(path, []byte(`{"message": "boom"}`), 0o600))
	testkit.Lease(t, path)
	if got, err := ReadErrorFile(path); err != nil || got.Message != "boom" {
		t.Errorf("got %+v, error %v", got, err)
	}
}

func FuzzErrorFile(f *testing.F) {
	f.Add([]byte(`{"message": {"message": "ValueError: boom", "extraInfo": {"py_callstack": "Traceback (most recent call last):\nE", ` +
		`"timestamp": "1"}, "errorCode": 1}}`))
	f.Add([]byte(`{"message": "boom", "timestamp": 2e9}`))
	f.Add([]byte(`{"message": {"message": {}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		e, err := parseErrorFile(text)
		if err != nil {
			return
		}
		if len(e.Message) > maxMessage || len(e.Stack) > maxStack || !utf8.ValidString(e.Message+e.Stack) {
			t.Errorf("%d and %d bytes", len(e.Message), len(e.Stack))
		}
		// agents send it to each other, and it becomes part of a report
		d := Death{Exit: 1, ErrorFile: e}
		sent, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		var back Death
		if err := json.Unmarshal(sent, &back); err != nil || !back.ErrorFile.Time.Equal(e.Time) || back.ErrorFile.Message != e.Message {
			t.Errorf("%+v came back as %+v, %v", e, back.ErrorFile, err)
		}
		checkReport(t, Report([]Death{d}, Choose([]Death{d}), "over"))
	})
}

// torchAgents runs small agents in Python, one after another. They and their three ranks are forked from a process that has imported
// PyTorch already. As ddpbatch's agents do, each one stops the other ranks with TERM once a rank has failed. It then writes the deaths to a
// file. The arguments are a folder, and the ways in which rank 2 ends. Each way has its files in a folder of its name.
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
held = socket.socket()  # so that nobody else gets the port; it never listens
held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
held.bind(("127.0.0.1", 0))
port = held.getsockname()[1]

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

// If rank 2 of a real PyTorch run fails, the report names rank 2 and its error, whichever rank ends first.
// TestTorchFailureBlamesTheRankThatBegan of cmd/ddpbatch checks signals and exit codes.
func TestFailedRankOfRealPyTorchIsNamed(t *testing.T) { // without the race detector
	cases := map[string]struct {
		says     string // in the report
		first    bool   // the end of another rank must be reported first
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
		// TERM may end the others while they write theirs
		if d.ErrorFile, err = ReadErrorFile(path + ".json"); err != nil && !errors.Is(err, fs.ErrNotExist) && d.Rank == 2 {
			t.Error(err)
		}
	}
	return deaths
}
