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
	every     = 30 * time.Second // figures are taken
	stopLimit = 3 * time.Second  // that the end of a job waits for a file system
	maxID     = 64               // bytes of a job's id in a file's name
)

// Config is what to show, and where.
type Config struct {
	Labels
	Dir    *rundir.Dir    // of the run
	Folder string         // where the file is written, ddpbatch-ID.prom; "": nowhere
	Listen netip.AddrPort // who connects to it is answered; the zero value: nobody is
	Log    *slog.Logger
	Note   func(format string, args ...any) // tells a person where the figures are
}

// Start begins to show how a run gets on. What cannot be written, or listened at, is a warning. stop ends it and removes the file; it
// waits six seconds at the most. The end of ctx alone ends nothing, as the run may take a while to stop.
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
			c.Log.Warn("nobody can ask for the run's metrics; the run goes on", "error", err)
		} else {
			c.Note("the run's metrics are at http://%s%s", l.Addr(), metricsPath)
			tasks.Go(func() { e.serve(ctx, l) })
		}
	}
	return func() {
		cancel()
		// Neither the run's file server nor that of the folder holds up the end.
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

// exporter takes figures, and keeps the newest.
type exporter struct {
	gather func(now time.Time) (figures, error)
	labels []label
	path   string // of the file; "": none is written
	log    *slog.Logger

	newest  atomic.Pointer[figures] // nil: none were taken yet
	written atomic.Bool             // there may be a file

	notGathered, notWritten sync.Once // was told
}

func newExporter(c Config, gather func(time.Time) (figures, error)) *exporter {
	e := &exporter{gather: gather, labels: c.list(), log: c.Log}
	if c.Folder != "" {
		e.path = filepath.Join(c.Folder, "ddpbatch-"+fileWord(cmp.Or(c.ID, c.Run))+".prom")
	}
	return e
}

// fileWord is text as a part of a file's name.
func fileWord(word string) string {
	return strings.Map(func(r rune) rune {
		if r < 128 && (r == '_' || r == '.' || r == '-' || '0' <= r && r <= '9' || 'a' <= r|0x20 && r|0x20 <= 'z') {
			return r
		}
		return '-'
	}, text.Cut(word, maxID))
}

// run shows figures every half minute, until ctx ends.
func (e *exporter) run(ctx context.Context) {
	for {
		e.update(ctx)
		if pause.For(ctx, every) != nil {
			return
		}
	}
}

// update takes figures and shows them. Where that fails the ones before stay, and get old: node_exporter shows the file's time.
func (e *exporter) update(ctx context.Context) {
	f, err := e.gather(time.Now())
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		e.notGathered.Do(func() {
			e.log.Warn("the run's metrics are not shown to monitoring as long as they cannot be read", "error", err)
		})
		return
	}
	e.newest.Store(&f)
	if e.path == "" {
		return
	}
	// The collector runs as another user. It reads only *.prom files, so not the temporary one.
	// No sync: a job does not outlive a power cut.
	o := replace.Options{Mode: 0o644, NoSync: true}
	err = replace.FileWith(ctx, vfs.OS{}, e.path, o, replace.Bytes(f.write(prometheus, e.labels)))
	if err == nil {
		e.written.Store(true)
	} else if ctx.Err() == nil {
		e.notWritten.Do(func() {
			e.log.Warn("the run's metrics are not written for node_exporter; the run goes on", "file", e.path, "error", err)
		})
	}
}

// remove removes the file.
func (e *exporter) remove() {
	if !e.written.Load() {
		return
	}
	if err := os.Remove(e.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		e.log.Warn("the file of the run's metrics stays, though its job ends", "file", e.path, "error", err)
	}
}
