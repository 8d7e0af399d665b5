package supervise

import (
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"ddpbatch/internal/pause"
	"ddpbatch/internal/vfs"
	"ddpbatch/mpi/launch/rendezvous"
	"ddpbatch/mpi/launch/watch"
)

// heartbeatWait is how long an agent waits for the file system's answer about the heartbeat files before it goes on.
const heartbeatWait = 50 * time.Millisecond

// unused is the time of a file that no worker has changed yet.
var unused = time.Unix(0, 0)

// heartbeatOf is the file that a worker changes to show that it makes progress; "": none.
func (r *round) heartbeatOf(n rendezvous.RankNumbers) string {
	if r.cfg.HangAfter <= 0 {
		return ""
	}
	return r.privateFile(n, "heartbeat")
}

// heartbeat is an observation of a worker's file.
type heartbeat struct {
	at    time.Time // when it was changed; zero: no file, or not changed yet
	beat  watch.Beat
	known bool // the file begins with a step
}

// heartbeats observes when the workers' heartbeat files were changed, and their contents, and restores their folder if it was
// removed. If the folder is on a file server, that may not answer for long: then the previous observation counts.
type heartbeats struct {
	folder  *privateFolder // nil: there are no files
	log     *slog.Logger
	removed sync.Once // was logged
	taken   sync.Once // was logged
	paths   []string
	steps   bool // whether the contents matter
	seen    []heartbeat
	answers chan []heartbeat // nil: no observation is running
}

func newHeartbeats(r *round, workers []*worker) *heartbeats {
	h := &heartbeats{folder: r.private, log: r.cfg.Log, steps: r.cfg.watchesSteps(), seen: make([]heartbeat, len(workers))}
	for _, w := range workers {
		h.paths = append(h.paths, w.files.heartbeat)
	}
	return h
}

// look observes all files, in the order of the workers. It leaves at most one goroutine behind, for as long as the file system does
// not answer.
func (h *heartbeats) look() []heartbeat {
	if h.answers == nil {
		answers := make(chan []heartbeat, 1)
		h.answers = answers
		before := h.seen // its elements are never changed
		go func() {
			if h.keepFolder() {
				answers <- h.read(before)
				return
			}
			answers <- unknown(before)
		}()
	}
	if seen, came := pause.Await(h.answers, heartbeatWait); came {
		h.seen, h.answers = seen, nil
	}
	return h.seen
}

// keepFolder restores the folder if it was removed. It returns false if workers find another user's folder in its place.
func (h *heartbeats) keepFolder() bool {
	if h.folder == nil {
		return true
	}
	switch gone, err := h.folder.restore(); {
	case errors.Is(err, errTaken):
		h.taken.Do(func() {
			h.log.Warn("the folder of the workers' heartbeat files was removed, and another user or program has made one with its "+
				"name; as long as that exists, "+
				"a worker that has beaten before does not count as hung, and output and CPU time of the others count", "path",
				h.folder.path)
		})
		return false
	case gone:
		h.removed.Do(func() {
			h.log.Warn("the folder of the workers' heartbeat files was removed, and is made anew; until workers use it, "+
				"output and CPU time count "+
				"(systemd-logind empties a user's /dev/shm at the last logout: RemoveIPC in logind.conf)", "path",
				h.folder.path, "error", err)
		})
	}
	return true
}

// unknown returns what counts while the files cannot be observed: a worker that has changed its file before counts as alive now,
// and nothing is known about the others.
func unknown(before []heartbeat) []heartbeat {
	now := make([]heartbeat, len(before))
	for i := range now {
		if !before[i].at.IsZero() {
			now[i].at = time.Now()
		}
	}
	return now
}

// read observes each file. A file that cannot be observed now is as before.
func (h *heartbeats) read(before []heartbeat) []heartbeat {
	now := slices.Clone(before)
	for i, path := range h.paths {
		switch info, err := os.Lstat(path); {
		case err == nil && now[i].known && info.ModTime().Equal(now[i].at): // it has been read before
		case err == nil && !info.ModTime().Equal(unused):
			if now[i] = (heartbeat{at: info.ModTime()}); h.steps && info.Mode().IsRegular() {
				now[i].open(path)
			}
		case err == nil, errors.Is(err, fs.ErrNotExist): // "", too
			now[i] = heartbeat{}
		}
	}
	return now
}

// open reads a file's contents and its time, if it has a step. It does not follow links, and does not wait for pipes.
func (b *heartbeat) open(path string) {
	f, info, err := vfs.OpenRegularNoLink(path) // the file may be another one by now
	if err != nil {
		return
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, watch.MaxBeat))
	if beat, ok := watch.ParseBeat(text); ok && err == nil {
		*b = heartbeat{info.ModTime(), beat, true}
	}
}
