package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
)

// torchPython returns a Python that has PyTorch with gloo. Debian's python3-torch belongs to /usr/bin/python3, which need not be the first
// in PATH.
var torchPython = sync.OnceValues(func() (string, error) {
	var errs []error
	for _, python := range []string{"/usr/bin/python3", "python3"} {
		out, err := exec.Command(python, "-c", "import torch.distributed as d; print(d.is_available())").CombinedOutput()
		if err == nil && strings.TrimSpace(string(out)) == "True" {
			return python, nil
		}
		errs = append(errs, fmt.Errorf("%s: %v: %.200s", python, err, out))
	}
	return "", errors.Join(errs...)
})

// torch returns a command that runs a script of testdata/torch, or skips the test.
func torch(t *testing.T, script string, args ...string) *exec.Cmd {
	t.Helper()
	python, err := torchPython()
	if err != nil {
		t.Skipf("needs PyTorch (Debian's python3-torch): %v", err)
	}
	// import torch takes a second, and ten seconds if the machine is busy
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, python, append([]string{filepath.Join("testdata", "torch", script)}, args...)...)
	cmd.Env = append(os.Environ(), "OMP_NUM_THREADS=1", "GLOO_SOCKET_IFNAME=lo", "PYTHONDONTWRITEBYTECODE=1")
	return cmd
}

func port(s *Server) string { return fmt.Sprint(s.Addr().(*net.TCPAddr).Port) }

func TestTorchAndGoClientsShareAServer(t *testing.T) {
	t.Parallel()
	var log testkit.Journal
	s := serve(t, ServerConfig{Torch: true, Log: log.Logger()})
	cmd := torch(t, "tcpstore.py", port(s))
	c := connect(t, s)
	if err := c.MultiSet(bounded(t), Item{"/from go", []byte("\x00hello\xff")}); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		defer s.Close() // in case the client fails
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	ctx := context.Background() // until s is closed
	if err := c.Wait(ctx, "/please"); err != nil {
		t.Errorf("wait for PyTorch: %v", err)
	}
	if n := s.waiters("/never"); n != 0 {
		t.Errorf("%d wait for what nobody wants any more", n)
	}
	if err := c.Set(ctx, "/late", []byte("at last")); err != nil {
		t.Error(err)
	}
	if got, err := c.Get(ctx, "/from torch"); string(got) != "done" || err != nil {
		t.Errorf("from PyTorch: %q, %v", got, err)
	}
	all.Wait()
	if lines := log.Lines(); len(lines) != 1 || !strings.Contains(lines[0], "not a decimal number") {
		t.Errorf("log: %q", lines)
	}
}

// gloo runs ranks that meet by an init method.
func gloo(t *testing.T, ranks int, method string, env ...string) {
	t.Helper()
	cmds := make([]*exec.Cmd, ranks)
	for rank := range cmds {
		cmds[rank] = torch(t, "gloo.py", method)
		cmds[rank].Env = append(append(cmds[rank].Env, env...), fmt.Sprint("RANK=", rank), fmt.Sprint("WORLD_SIZE=", ranks))
	}
	for rank, err := range testkit.Each(ranks, func(rank int) error {
		if out, err := cmds[rank].CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}) {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// TestGlooConnectsByServer has PyTorch ranks meet as torchrun does it. They see only their part of the store.
func TestGlooConnectsByServer(t *testing.T) {
	t.Parallel()
	var log testkit.Journal
	s := serve(t, ServerConfig{Torch: true, TorchPrefix: "torch/", Log: log.Logger()})
	if err := s.Set(bounded(t), "ours", nil); err != nil {
		t.Fatal(err)
	}
	gloo(t, 3, "env://", "MASTER_ADDR=127.0.0.1", "MASTER_PORT="+port(s),
		"TORCHELASTIC_USE_AGENT_STORE=True", "TORCHELASTIC_RESTART_COUNT=0")
	keys, err := s.List(bounded(t), "")
	if err != nil || len(keys) < 10 || keys[0] != "ours" {
		t.Fatalf("the store holds %q, %v", keys, err)
	}
	for _, key := range keys[1:] {
		if !strings.HasPrefix(key, "torch/") {
			t.Errorf("PyTorch wrote %q", key)
		}
	}
	if log.String() != "" {
		t.Errorf("log: %s", log.String())
	}
}

func TestTorchAndGoShareAFile(t *testing.T) {
	t.Parallel()
	const rounds = 100
	path := tempPath(t)
	cmd := torch(t, "filestore.py", path, fmt.Sprint(rounds))
	f, err := OpenFile(path, FileConfig{Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	_, err = f.Delete(ctx, "deleted twice")
	for _, err := range []error{
		err, f.MultiSet(ctx, Item{"from go", []byte("\x00hello\xff")}, Item{"turn", []byte("go")}),
		f.Append(ctx, "appended", []byte("a")), f.Append(ctx, "appended", []byte("bc")),
		f.Set(ctx, "deleted twice", nil), drop(f.Delete(ctx, "deleted twice")), f.Set(ctx, "deleted twice", []byte("again")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var all sync.WaitGroup
	all.Go(func() {
		defer cancel() // in case it fails
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	if got, err := f.MultiGet(ctx, "from torch", ""); err != nil || string(got[0]) != "hello" || string(got[1]) != "empty" {
		t.Errorf("from PyTorch: %q, %v", got, err)
	}
	for range rounds {
		if _, err := f.Add(ctx, "number", 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Wait(ctx, "torch is done"); err != nil {
		t.Error(err)
	}
	expectList(t, f, fmt.Sprintf("=empty appended=abc deleted twice=again from go=\x00hello\xff from torch=hello number=%d torch is "+
		"done= turn=torch", 2*rounds))
	if err := f.Set(ctx, "go is done", nil); err != nil {
		t.Error(err)
	}
	all.Wait()
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is still there: %v", err)
	}
}

// TestGlooConnectsByFile has PyTorch ranks meet in a file that a Go process has created. The last of them removes it.
func TestGlooConnectsByFile(t *testing.T) {
	t.Parallel()
	path := tempPath(t)
	f := openFile(t, path)
	if err := f.Set(bounded(t), "ours", nil); err != nil {
		t.Fatal(err)
	}
	gloo(t, 2, "file://"+path)
	expectList(t, f, "")
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is still there: %v", err)
	}
}
