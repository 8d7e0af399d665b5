package supervise

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"ddpbatch/internal/container"
	"ddpbatch/internal/proc"
	"ddpbatch/internal/testkit"
)

// A container is removed if its client may have left it behind: the client was killed, reported that it could not start the container, or
// ended before anything ran in it.
func TestContainersThatMayBeLeftAreRemoved(t *testing.T) {
	const begin = `setsid env "$PAIR" sh -c 'trap "exit 0" TERM; touch "$0"; while :; do sleep 0.01; done' "$READY" & wait "$!"; `
	const noDaemon = "echo Cannot connect to the Docker daemon at unix:///run/docker.sock. Is the docker daemon running?; exit 1"
	for name, test := range map[string]struct {
		client         string
		begun, removed bool
		remover        string // what removes it; "": it succeeds
		warns          bool
	}{
		"ends well":                    {client: "exit 0"},
		"ends with a code":             {client: "exit 3"},
		"cannot start it":              {client: "exit 125", removed: true},
		"killed":                       {client: "kill -KILL $$", removed: true},
		"told to end before it began":  {client: `trap "exit 0" TERM; touch "$READY"; while :; do sleep 0.01; done`, removed: true},
		"told to end later":            {client: begin + "exit 0", begun: true},
		"there is no daemon":           {client: "exit 125", removed: true, remover: noDaemon},
		"told, and the daemon is gone": {client: begin + "exit 125", begun: true, removed: true, remover: noDaemon, warns: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			log, ready, runtime := filepath.Join(dir, "log"), filepath.Join(dir, "ready"), filepath.Join(dir, "podman")
			script := fmt.Sprintf("#!/bin/sh\n[ \"$1\" != rm ] || { echo \"$@\" >>%s; %s; exit; }\n%s\n", log,
				cmp.Or(test.remover, "true"), test.client)
			must(t, os.WriteFile(runtime, []byte(script), 0o700))
			pair := "DDPBATCH_TEST_CONTAINER=" + proc.NewCookie()
			k := &contained{config: &Container{Config: container.Config{Runtime: container.Podman}},
				name: "its-name", pairs: []string{pair}}
			cmd := exec.Command(runtime, "run")
			cmd.Env = append(os.Environ(), "PAIR="+pair, "READY="+ready)
			client, err := proc.Start(cmd)
			must(t, err)
			k.processOf(client)
			testkit.Eventually(t, "the container's process is found", func() bool { return !test.begun || k.client.Pid() != client.Pid() })
			if strings.HasPrefix(name, "told") {
				testkit.Eventually(t, "it is ready", func() bool { _, err := os.Stat(ready); return err == nil })
				must(t, k.client.Signal(syscall.SIGTERM))
			}
			<-client.Done()
			code, signal := client.End()
			if err := k.removeLeft(cmd, code, signal); (err != nil) != test.warns {
				t.Errorf("removed: %v", err)
			}
			text, _ := os.ReadFile(log)
			if got := strings.TrimSpace(string(text)); got != map[bool]string{true: "rm --force its-name"}[test.removed] {
				t.Errorf("the runtime was called with %q", got)
			}
		})
	}
}
