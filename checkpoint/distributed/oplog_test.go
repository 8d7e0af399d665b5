package distributed

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"ddpbatch/internal/vfs"
)

var update = flag.Bool("update", false, "rewrite testdata/oplog.txt")

// random are the parts of names that differ from run to run, lengths the sizes of files that hold times.
var (
	random  = regexp.MustCompile(`(\.3-[0-9a-f]{8}-([0-9a-f]{8}|1)|\.ddpbatch-[0-9a-f]{8})\b`)
	lengths = regexp.MustCompile(`((?:MANIFEST|local/).*) [0-9]+ bytes`)
)

// TestOperationLog compares what each of four ranks does with the file system in one save, and each of two with a node-local tier, with testdata/oplog.txt, which was reviewed by
// hand: shards before the manifest, every file synced before it gets its name, every folder after; nobody but rank 0 touches anything else
// than his own shard. Reads are left out, except the length check.
func TestOperationLog(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	for _, c := range []struct {
		world int
		o     Options
	}{{4, Options{}}, {2, Options{Local: localPath}}} {
		disk, _ := newDisk(t)
		var ranks []*vfs.Injector
		for range c.world {
			ranks = append(ranks, vfs.NewInjector(disk, nil))
		}
		started := make([]int, c.world)
		mustAll(t, trial{world: c.world, attempt: 3, o: c.o, fs: func(rank int) vfs.FS { return ranks[rank] }}.run(t.Context(), func(ctx context.Context, r *one) error {
			started[r.rank] = len(ranks[r.rank].Log())
			if err := r.save(ctx, 100); err != nil {
				return err
			}
			_, err := r.Wait(ctx)
			return err
		}))
		for rank, in := range ranks {
			fmt.Fprintf(&log, "# rank %d, local tier %v\n", rank, c.o.Local != "")
			for _, op := range in.Log()[started[rank]:] {
				log.WriteString(line(op))
			}
			log.WriteString("\n")
		}
	}
	golden := filepath.Join("testdata", "oplog.txt")
	if *update {
		must(t, os.MkdirAll("testdata", 0o755))
		must(t, os.WriteFile(golden, []byte(log.String()), 0o644))
	}
	want, err := os.ReadFile(golden)
	must(t, err)
	if log.String() != string(want) {
		t.Errorf("the operations are\n%s\nwant those of %s\n%s", log.String(), golden, want)
	}
}

// line is an operation in the log; nothing for one that only reads, or whose result depends on the other ranks of the node.
func line(op vfs.Op) string {
	switch op.Kind {
	case "open", "read", "readdir", "rmdir":
		return ""
	case "stat":
		if !strings.HasSuffix(op.Path, ".tmp") {
			return ""
		}
	case "mkdir", "syncdir": // the first rank of a node makes folders
		if strings.HasPrefix(op.Path, localPath) && (op.Kind == "mkdir" || !strings.Contains(op.Path, "/step-")) {
			return ""
		}
	}
	text := strings.NewReplacer(sharedPath, "checkpoints", localPath, "local").Replace(op.String())
	text = lengths.ReplaceAllString(random.ReplaceAllString(text, ".TAG"), "$1 N bytes")
	return text + "\n"
}
