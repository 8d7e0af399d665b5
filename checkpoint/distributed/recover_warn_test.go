package distributed

import (
	"context"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/testkit"
	"ddpbatch/internal/vfs"
)

// TestRecoveryWarnsOnce: the newest shared checkpoint is damaged, and a newer save lies on the nodes' disks, which is not whole or damaged, too. Recovery and the
// search after it both come by that; who reads the log is told once of each.
func TestRecoveryWarnsOnce(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		harm func(ns *nodes)
		want []string
	}{
		"not whole": {
			func(ns *nodes) { ns.disks = []*vfs.Mem{ns.disks[0], ns.disks[2]} },
			[]string{"newer than all that is shared, but not whole"},
		},
		"damaged": {
			func(ns *nodes) {
				for _, path := range tree(ns.disks[1], localPath) {
					if strings.HasSuffix(path, ".ddpt") {
						flip(t, ns.disks[1], path)
					}
				}
			},
			[]string{"nodes' own disks is damaged"},
		},
	} {
		for _, file := range []string{"MANIFEST.json", ".ddpt"} {
			t.Run(name+" "+file, func(t *testing.T) {
				t.Parallel()
				ns := undrained(t) // after step 1, step 2
				harmNewest(t, ns, file)
				test.harm(ns)
				var journal testkit.Journal
				mustAll(t, trial{world: 6, attempt: 2, o: Options{Local: localPath, Log: journal.Logger()}, fs: ns.fs(0)}.run(t.Context(), func(ctx context.Context, r *one) error {
					c, err := r.Resume(ctx, func(*checkpoint.Checkpoint) error { return nil })
					if err == nil {
						err = c.Close()
					}
					return err
				}))
				warned := map[string]int{}
				for _, line := range journal.Lines() {
					if strings.Contains(line, "level=WARN") {
						warned[times.ReplaceAllString(line, "")]++
					}
				}
				for line, n := range warned {
					if n > 1 {
						t.Errorf("told %d times: %s", n, line)
					}
				}
				for _, want := range append(test.want, "checkpoint is corrupt") {
					if !strings.Contains(journal.String(), want) {
						t.Errorf("nobody is told %q:\n%s", want, journal.String())
					}
				}
			})
		}
	}
}

var times = regexp.MustCompile(`time=\S+ `)

// harmNewest puts step 0 beside the only shared checkpoint of ns, as the one to go back to, and damages that one's manifest, or removes a shard.
func harmNewest(t *testing.T, ns *nodes, ending string) {
	t.Helper()
	mustAll(t, trial{world: 1, attempt: 1, fs: func(int) vfs.FS { return ns.shared }}.run(t.Context(), func(ctx context.Context, r *one) error {
		if err := r.save(ctx, 0); err != nil {
			return err
		}
		_, err := r.Wait(ctx)
		return err
	}))
	for _, path := range tree(ns.shared, filepath.Join(sharedPath, "step-000000000001")) {
		switch {
		case !strings.HasSuffix(path, ending):
		case ending == "MANIFEST.json":
			flip(t, ns.shared, path)
		default:
			must(t, ns.shared.Remove(path))
			return
		}
	}
}
