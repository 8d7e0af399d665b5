package slurm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// corpus holds the output of commands of a real Slurm 22.05; its README.md says how it was collected.
var corpus = filepath.Join("testdata", "22.05")

// recorded returns the real output of a command. The name is a path in the corpus without its suffix.
func recorded(t testing.TB, name string) Output {
	t.Helper()
	var out Output
	read := func(suffix string) []byte {
		data, err := os.ReadFile(filepath.Join(corpus, name+suffix))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	out.Stdout, out.Stderr = read(".stdout"), read(".stderr")
	code, err := strconv.Atoi(strings.TrimSpace(string(read(".rc"))))
	if err != nil {
		t.Fatal(err)
	}
	out.Code = code
	return out
}

// pretend answers commands from a table, and records the commands.
type pretend struct {
	answers map[string]Output // by the command's name; a command that is not in it is not installed
	asked   []string
	environ []string
}

func (p *pretend) run(_ context.Context, c Command) (Output, error) {
	p.asked = append(p.asked, ShellJoin(append([]string{c.Name}, c.Args...)))
	p.environ = c.Environ
	out, found := p.answers[c.Name]
	if !found {
		return Output{}, fmt.Errorf("%w: no %s", ErrNoSlurm, c.Name)
	}
	return out, nil
}

func (p *pretend) client() *Client { return &Client{Run: p.run} }

func TestClientEnvironHasNoFormats(t *testing.T) {
	p := &pretend{answers: map[string]Output{"squeue": recorded(t, "cli/squeue-unknown-job"), "sbatch": {Stdout: []byte("1\n")}}}
	given := []string{"PATH=/bin", "SQUEUE_STATES=PENDING", "SLURM_CONF=/etc/slurm.conf", "SLURM_TIME_FORMAT=relative",
		"SACCT_FORMAT=x", "SQUEUE=1"}
	client := &Client{Environ: given, Run: p.run}
	if _, err := client.Jobs(t.Context(), []string{"1"}); !errors.Is(err, ErrUnknownJob) {
		t.Errorf("error %v", err)
	}
	if want := []string{"PATH=/bin", "SLURM_CONF=/etc/slurm.conf", "SQUEUE=1"}; !slices.Equal(p.environ, want) {
		t.Errorf("asked with %q, want %q", p.environ, want)
	}
	if _, err := client.Submit(t.Context(), "/s.sh", nil); err != nil || !slices.Equal(p.environ, given) {
		t.Errorf("submitted with %q (%v), want all of %q", p.environ, err, given)
	}
}

func TestExec(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "squeue"), "#!/bin/sh\necho \"out $1 $X\"\necho err >&2\nexit 7\n")
	write(t, filepath.Join(dir, "scontrol"), "#!/bin/sh\nhead -c 9000000 /dev/zero\n")
	write(t, filepath.Join(dir, "sacct"), "#!/bin/sh\nexec sleep 600\n")
	write(t, filepath.Join(dir, "scancel"), "#!/bin/sh\nkill -KILL $$\n")
	environ := []string{"PATH=relative:/nonexistent:" + dir + ":/usr/bin:/bin", "X=y z"}

	out, err := Exec(t.Context(), Command{Name: "squeue", Args: []string{"a b"}, Environ: environ})
	if err != nil || string(out.Stdout) != "out a b y z\n" || string(out.Stderr) != "err\n" || out.Code != 7 {
		t.Errorf("%+v, %v", out, err)
	}
	out, err = Exec(t.Context(), Command{Name: "scontrol", Environ: environ})
	if err != nil || len(out.Stdout) != maxOutput || out.Code != 0 {
		t.Errorf("kept %d bytes with code %d (%v), want %d", len(out.Stdout), out.Code, err, maxOutput)
	}
	if _, err := Exec(t.Context(), Command{Name: "scancel", Environ: environ}); err == nil || errors.Is(err, ErrNoSlurm) {
		t.Errorf("a killed command: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := Exec(ctx, Command{Name: "sacct", Environ: environ}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a command that hangs: %v", err)
	}
}

func TestExecLooksUpOnlyInItsPath(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "sbatch"), "#!/bin/sh\n")
	t.Chdir(dir)
	for name, environ := range map[string][]string{
		"no PATH": nil, "empty PATH": {"PATH="}, "current folder": {"PATH=.:"}, "other folder": {"PATH=/nonexistent"},
		"the last PATH counts": {"PATH=" + dir, "PATH=/nonexistent"},
	} {
		_, err := Exec(t.Context(), Command{Name: "sbatch", Environ: environ})
		if !errors.Is(err, ErrNoSlurm) || !strings.Contains(err.Error(), "ddpbatch simulate") {
			t.Errorf("%s: %v", name, err)
		}
	}
	client := &Client{Environ: []string{"PATH=" + dir}}
	if _, err := client.Submit(t.Context(), "/s.sh", nil); err == nil || errors.Is(err, ErrNoSlurm) {
		t.Errorf("an sbatch that says nothing: %v", err)
	}
}

// Exec's command dies with this process. If it lived on, it could submit a job after another was submitted in its place.
func TestExecDiesWithThisProcess(t *testing.T) {
	if dir := os.Getenv("SLURM_TEST_VICTIM"); dir != "" { // the process that is killed
		_, err := Exec(t.Context(), Command{Name: "sbatch", Environ: []string{"PATH=" + dir + ":/usr/bin:/bin"}})
		t.Fatalf("sbatch ended: %v", err)
	}
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "sbatch"), "#!/bin/sh\nexec >'"+pipe+"'\necho started\nexec sleep 600\n")
	victim := exec.Command(os.Args[0], "-test.run=^TestExecDiesWithThisProcess$")
	victim.Env = append(os.Environ(), "SLURM_TEST_VICTIM="+dir)
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	said, err := os.Open(pipe)
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	var line [8]byte
	if _, err := io.ReadFull(said, line[:]); err != nil {
		t.Fatal(err)
	}
	if err := victim.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = victim.Wait() // it was killed
	// reading ends when no process has the pipe open any more
	if err := said.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(said); err != nil || len(rest) > 0 {
		t.Errorf("%q, %v: sbatch lives on", rest, err)
	}
}
