package slurm

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

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
		"no PATH": nil, "empty PATH": {"PATH="}, "current folder": {"PATH=.:"}, "other folder": {"PATH=/nonexistent"}, "the last PATH counts": {"PATH=" + dir, "PATH=/nonexistent"},
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
