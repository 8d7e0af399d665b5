package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ddpbatch/internal/runview"
	"ddpbatch/internal/testkit"
)

// TestSimulateEndedByHand: a run that is cancelled or interrupted saves, says so in one word and how to go on once, and is CANCELLED.
func TestSimulateEndedByHand(t *testing.T) {
	for name, tt := range map[string]struct {
		release   string // of Slurm
		interrupt bool
		exit      int
		message   string
	}{
		"Ctrl-C":        {"22.05", true, 130, "interrupted; the workers saved first"},
		"Ctrl-C, 25.11": {"25.11", true, 130, "interrupted; the workers saved first"},
		"cancel":        {"22.05", false, 143, "cancelled; the workers saved first"},
		"cancel, 25.11": {"25.11", false, 143, "cancelled; the workers saved first"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "long.toml"), []byte(stoppableJob), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd, out := command(dir, "simulate", "long.toml", "--slurm", tt.release, "--set", "train.epochs=6000")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer time.AfterFunc(3*time.Minute, func() { cmd.Process.Kill() }).Stop() // more than is waited for below
			eventually(t, time.Minute, "the run trains", func() bool {
				run := runMade(t, dir)
				if run == nil {
					return false
				}
				m, ok, err := run.LastMetrics()
				return err == nil && ok && m.Step >= 100
			})
			run := runMade(t, dir)
			if row := oneStatus(t, dir, run.Path()); row.State != "RUNNING" {
				t.Errorf("while it runs, status is %s", row.State)
			}
			if tt.interrupt {
				cmd.Process.Signal(syscall.SIGINT)
			} else if cancel, said := command(dir, "cancel", run.Path()); cancel.Run() != nil || !strings.Contains(said.String(), "cancelled job") {
				t.Errorf("cancel: %s", said)
			}
			cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != tt.exit {
				t.Errorf("exit code %d, want %d\n%s", code, tt.exit, out)
			}
			if n := strings.Count(out.String(), "resume: "); n != 1 || !strings.Contains(out.String(), "ddpbatch: "+tt.message+"\n") {
				t.Errorf("it says %d times how to resume:\n%s", n, out)
			}
			if row := oneStatus(t, dir, run.Path()); row.State != "CANCELLED" || row.Message != tt.message {
				t.Errorf("status is %s, %s", row.State, row.Message)
			}
			before := eventsOf(t, run)
			again, said := command(dir, "cancel", run.Path())
			if again.Run(); again.ProcessState.ExitCode() != exitUsage || !strings.Contains(said.String(), "has ended already: CANCELLED ("+tt.message+"); there is nothing to cancel\n") {
				t.Errorf("cancelled twice: %s", said)
			}
			if after := eventsOf(t, run); !slices.Equal(after, before) {
				t.Errorf("a cancel of what has ended changed the ledger: %q, then %q", before, after)
			}
			eventually(t, testkit.Patience, "no process of the run is left", func() bool { return len(processesOf(run)) == 0 })
		})
	}
}

// oneStatus is what status tells of one run.
func oneStatus(t *testing.T, dir, run string) runview.RunStatus {
	t.Helper()
	cmd, out := command(dir, "status", "--json", run)
	if err := cmd.Run(); err != nil {
		t.Fatalf("status: %v\n%s", err, out)
	}
	var rows []runview.RunStatus
	if err := json.Unmarshal(out.Bytes(), &rows); err != nil || len(rows) != 1 {
		t.Fatalf("status: %v\n%s", err, out)
	}
	return rows[0]
}
