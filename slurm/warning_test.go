package slurm_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"ddpbatch/slurm"
)

// TestParseWarning: what sbatch 22.05.8 takes and what it refuses (each was tried with --test-only), and what its manual says it means.
func TestParseWarning(t *testing.T) {
	usr1, minute := syscall.SIGUSR1, time.Minute
	for text, want := range map[string]slurm.Warning{
		"USR1": {usr1, false, minute}, "usr1@30": {usr1, false, 30 * time.Second}, "SIGUSR1@30": {usr1, false, 30 * time.Second},
		"10@5": {syscall.Signal(10), false, 5 * time.Second}, "09": {syscall.SIGKILL, false, minute}, "64": {syscall.Signal(64), false, minute},
		"B:USR1": {usr1, true, minute}, "b:usr1@1": {usr1, true, time.Second}, "B:10": {usr1, true, minute}, ":USR1": {usr1, false, minute},
		"R:USR1": {usr1, false, minute}, "RB:TERM@9": {syscall.SIGTERM, true, 9 * time.Second}, "BR:TERM": {syscall.SIGTERM, true, minute},
		"USR1@": {usr1, false, 0}, "USR1@0": {usr1, false, 0}, "USR1@65535": {usr1, false, 65535 * time.Second}, "USR1 @5": {usr1, false, 5 * time.Second},
	} {
		if got, err := slurm.ParseWarning(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, bad := range []string{"", "USR1@65536", "0", "B:", "FOO", "USR1@1x", "RTMIN+1", "USR1@-1", "EXIT", "X:USR1", "B:B:USR1"} {
		if got, err := slurm.ParseWarning(bad); err == nil || !strings.Contains(err.Error(), "B:USR2@120") {
			t.Errorf("%q: %+v, %v", bad, got, err)
		}
	}
	for _, text := range []string{"B:USR2@120", "TERM@30"} {
		if w, err := slurm.ParseWarning(text); err != nil || w.String() != text {
			t.Errorf("%s comes back as %s, %v", text, w, err)
		}
	}
}
