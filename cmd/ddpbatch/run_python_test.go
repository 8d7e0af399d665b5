package main

import (
	"os/exec"
	"strings"
	"testing"
)

// TestRunMasterPortIsServed: a rank 0 that serves its MASTER_PORT itself hears which flag leaves that to it.
func TestRunMasterPortIsServed(t *testing.T) {
	t.Parallel()
	python := python(t)
	run := func(flags ...string) (string, error) {
		const script = `import os, socket; socket.create_server((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))); print("serves")`
		args := append(append([]string{"run", "--standalone"}, flags...), "--", python, "-c", script)
		out, err := exec.Command("ddpbatch", args...).CombinedOutput()
		return string(out), err
	}
	const says = "pass --torch-store=false (launch.torch_store = false in a job)"
	if out, err := run(); err == nil || !strings.Contains(strings.Join(strings.Fields(out), " "), says) {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := run("--torch-store=false"); err != nil || !strings.Contains(out, "serves") {
		t.Errorf("%v: %s", err, out)
	}
}
