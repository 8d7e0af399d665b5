package report

import (
	"os/exec"
	"testing"
)

func TestCommandLineShowsNamesOnly(t *testing.T) {
	cmd := exec.Command("/usr/bin/python3", "../train.py", "--nproc=2", "-n", "0.02")
	cmd.Env = []string{"KEY_FILE=/tmp/bench/key", "UCX_TLS=tcp,self"}
	if got, want := CommandLine(cmd), "KEY_FILE=key UCX_TLS=tcp,self python3 train.py --nproc=2 -n 0.02"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
