package exposition

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"ddpbatch/internal/pause"
	"ddpbatch/internal/replace"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/text"
	"ddpbatch/internal/vfs"
)

const (
	every     = 30 * time.Second // between two computations of the figures
	stopLimit = 3 * time.Second  // how long the end of a job waits for a file system
	maxID     = 64               // bytes of a job's id in a file's name
)

// Config says what to show, and where.
type Config struct {
	Labels
	Dir    *rundir.Dir    // the run
	Folder string         // the folder of the file ddpbatch-ID.prom; "": write none
	Listen netip.AddrPort // the address at which to answer requests; the zero value: none
	Log    *slog.Logger
	Note   func(format string, args ...any) // prints where the figures are, for a person
}

// Start begins to show the progress of a run. If the file cannot be written, or the address cannot be listened at, it logs a warning. stop
// ends it and removes the file; it waits at most six seconds. The end of ctx does not end it, as the run may take a while to stop.
func Start(ctx context.Context, c Config) (stop func()) {
	return newExporter(c, newGathering(c.Dir).at).start(ctx, c)
}

func (e *exporter) start(ctx context.Context, c Config) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var tasks sync.WaitGroup
	tasks.Go(func() { e.run(ctx) })
	if c.Listen.IsValid() {
		var config net.ListenConfig
		l, err := config.Listen(ctx, "tcp", c.Listen.String())
		if err != nil {
			c.Log.Warn("cannot listen for requests for the run's metrics; the run goes on", "error", err)
		} else {
			c.Note("the run's metrics are at http://%s%s", l.Addr(), metricsPath)
			tasks.Go(func() { e.serve(ctx, l) })
		}
	}
	return func() {
		cancel()
		// A file server that hangs, of the run or of the folder, must not delay the end.
		for _, part := range []func(){tasks.Wait, e.remove} {
			done := make(chan struct{})
			go func() {
				part()
				close(done)
			}()
			pause.Await(done, stopLimit)
		}
	}
}

// exporter computes figures, and keeps the newest.
type exporter struct {
	gather func(now time.Time) (figures, error)
	labels []label
	path   string // the file; "": none is written
	log    *slog.Logger

	newest  atomic.Pointer[figures] // nil: none were computed yet
	written atomic.Bool             // the file may exist

	notGathered, notWritten sync.Once // for the warnings
}

func newExporter(c Config, gather func(time.Time) (figures, error)) *exporter {
	e := &exporter{gather: gather, labels: c.list(), log: c.Log}
	if c.Folder != "" {
		e.path = filepath.Join(c.Folder, "ddpbatch-"+fileWord(cmp.Or(c.ID, c.Run))+".prom")
	}
	return e
}

// fileWord turns a text into a part of a file's name.
func fileWord(word string) string {
	return strings.Map(func(r rune) rune {
		if r < 128 && (r == '_' || r == '.' || r == '-' || '0' <= r && r <= '9' || 'a' <= r|0x20 && r|0x20 <= 'z') {
			return r
		}
		return '-'
	}, text.Cut(word, maxID))
}

// run updates the figures every half minute, until ctx ends.
func (e *exporter) run(ctx context.Context) {
	for {
		e.update(ctx)
		if pause.For(ctx, every) != nil {
			return
		}
	}
}

// update computes the figures and shows them. If that fails, the previous figures stay; node_exporter shows the file's time.
func (e *exporter) update(ctx context.Context) {
	f, err := e.gather(time.Now())
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		e.notGathered.Do(func() {
			e.log.Warn("cannot read the run's metrics for monitoring; trying again every half minute", "error", err)
		})
		return
	}
	e.newest.Store(&f)
	if e.path == "" {
		return
	}
	// The collector runs as another user, so it must be able to read the file. It reads only *.prom files, so not the temporary one.
	// The file is not synced: a job does not survive a power failure.
	o := replace.Options{Mode: 0o644, NoSync: true}
	err = replace.FileWith(ctx, vfs.OS{}, e.path, o, replace.Bytes(f.write(prometheus, e.labels)))
	if err == nil {
		e.written.Store(true)
	} else if ctx.Err() == nil {
		e.notWritten.Do(func() {
			e.log.Warn("cannot write the run's metrics for node_exporter; the run goes on", "file", e.path, "error", err)
		})
	}
}

// remove removes the file.
func (e *exporter) remove() {
	if !e.written.Load() {
		return
	}
	if err := os.Remove(e.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		e.log.Warn("cannot remove the file of the run's metrics at the job's end", "file", e.path, "error", err)
	}
}
