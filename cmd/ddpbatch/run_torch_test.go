package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/testkit/torch"
)

// tellEnvironment writes what a worker finds in its environment to a file of its own.
const tellEnvironment = `
import json, os, sys
with open(os.path.join(sys.argv[1], os.environ["RANK"] + ".json"), "w") as f:
    json.dump(dict(os.environ), f)
`

// TestRunEnvironmentAsTorchrun starts the same script under both launchers: each variable that torchrun sets is set, and to the same value but
// for those where ports and folders are of the run's own or docs/cli.md tells what differs.
func TestRunEnvironmentAsTorchrun(t *testing.T) {
	torch.Run(t, "import torch.distributed.run") // skips where there is none
	script := filepath.Join(t.TempDir(), "tell.py")
	if err := os.WriteFile(script, []byte(tellEnvironment), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := []string{"--nproc_per_node=2", "--role=actor", "--max_restarts=3", "--rdzv_id=77", "--master_port=" + fmt.Sprint(handPort(t)), "--log_dir=" + t.TempDir(),
		"--redirects=9:1", "--tee=9:1"} // torchrun 1.13 does not get along with its own defaults under Python 3.11
	real := environments(t, script, append([]string{"/usr/bin/python3", "-m", "torch.distributed.run"}, flags...))
	own := environments(t, script, append([]string{"ddpbatch", "run"}, flags...))
	differs := map[string]string{
		"OMP_NUM_THREADS":              "a share of the cores, where torchrun has 1",
		"TORCHELASTIC_USE_AGENT_STORE": "False, as --master_port is given",
		"TORCHELASTIC_ERROR_FILE":      "a folder of the run's own",
		"NCCL_ASYNC_ERROR_HANDLING":    "TORCH_NCCL_ASYNC_ERROR_HANDLING in versions from 2.2 on",
	}
	for rank := range 2 {
		compared := 0
		for name, want := range real[rank] {
			if _, inherited := os.LookupEnv(name); inherited || differs[name] != "" || name == "LC_CTYPE" {
				continue
			}
			compared++
			if got, ok := own[rank][name]; !ok || got != want {
				t.Errorf("rank %d: %s is %q (set: %t), under torchrun %q", rank, name, got, ok, want)
			}
		}
		if compared < 14 {
			t.Errorf("rank %d: only %d variables were compared", rank, compared)
		}
		if own[rank]["TORCHELASTIC_USE_AGENT_STORE"] != "False" || own[rank]["TORCH_NCCL_ASYNC_ERROR_HANDLING"] != "1" {
			t.Errorf("rank %d: TORCHELASTIC_USE_AGENT_STORE is %q", rank, own[rank]["TORCHELASTIC_USE_AGENT_STORE"])
		}
	}
}

// environments runs the script by a launcher, and returns each rank's environment.
func environments(t *testing.T, script string, launcher []string) (all []map[string]string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	dir := t.TempDir()
	words := append(slices.Clone(launcher), script, dir)
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "OMP_NUM_THREADS=") })
	cmd.WaitDelay = 10 * time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%q: %v\n%s", words, err, out)
	}
	for rank := range 2 {
		data, err := os.ReadFile(filepath.Join(dir, fmt.Sprint(rank)+".json"))
		if err != nil {
			t.Fatalf("%q: %v", words, err)
		}
		var one map[string]string
		if err := json.Unmarshal(data, &one); err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
	return all
}
