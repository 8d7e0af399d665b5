package launch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ddpbatch/internal/auth"
)

// The secret reaches only ddpbatch's own workers. It is not in the environment of users' commands, in the run directory or in the log.
func TestSecretStaysInside(t *testing.T) {
	for _, builtin := range []bool{false, true} {
		w := newWorld(t, []int{1, 1}, "environ")
		hex := w.agents[0].Secret.Hex()
		for i := range w.agents {
			w.agents[i].Builtin = builtin
			w.agents[i].Env = append(w.agents[i].Env, "DDPBATCH_SECRET="+hex) // as the batch script exports it
		}
		w.agree(w.run())
		for rank, host := range []string{"n1", "n2"} {
			env := w.environOf(host, rank)
			if _, there := env["DDPBATCH_SECRET"]; there != builtin {
				t.Errorf("builtin %v: rank %d has the secret: %v", builtin, rank, there)
			}
			if builtin {
				secret, err := auth.ParseSecret(env["DDPBATCH_SECRET"])
				if err != nil || !secret.Equal(w.agents[0].Secret) || env["DDPBATCH_LISTEN"] != "127.0.0.1" ||
					!strings.HasPrefix(env["DDPBATCH_STORE"], "127.0.0.1:") {
					t.Errorf("rank %d has %v, %v", rank, env, err)
				}
			}
		}
		if strings.Contains(w.log.String(), hex) {
			t.Error("the secret is in the log")
		}
		if builtin {
			continue // ddpbatch's own workers printed their environment to their logs
		}
		must(t, filepath.WalkDir(w.dir.Path(), func(path string, e os.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			text, err := os.ReadFile(path)
			if strings.Contains(string(text), hex) {
				t.Errorf("the secret is in %s", path)
			}
			return err
		}))
	}
}
