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

// heartbeatWait is how long an agent waits for the file system to tell of the heartbeat files, before it goes on.
const heartbeatWait = 50 * time.Millisecond

// unused is the time of a file that no worker has changed yet.
var unused = time.Unix(0, 0)

// heartbeatOf is the file that a worker changes to show that it gets on; "": none.
func (r *round) heartbeatOf(n rendezvous.RankNumbers) string {
	if r.cfg.HangAfter <= 0 {
		return ""
	}
	return r.privateFile(n, "heartbeat")
}

// heartbeat is what was seen of a worker's file.
type heartbeat struct {
	at    time.Time // when it was changed; zero: there is no file, or nobody has changed it
	beat  watch.Beat
	known bool // the file begins with a step
}

// heartbeats looks when the workers' heartbeat files were changed, and what is in them, and keeps their folder there. Where they lie on a
// file server, that may not answer for long: then what was seen before counts.
type heartbeats struct {
	folder  *privateFolder // nil: there are no files
	log     *slog.Logger
	removed sync.Once // was told
	taken   sync.Once // was told
	paths   []string
	steps   bool // somebody wants to know what is in them
	seen    []heartbeat
	answers chan []heartbeat // nil: nothing is being asked
}

func newHeartbeats(r *round, workers []*worker) *heartbeats {
	h := &heartbeats{folder: r.private, log: r.cfg.Log, steps: r.cfg.watchesSteps(), seen: make([]heartbeat, len(workers))}
	for _, w := range workers {
		h.paths = append(h.paths, w.files.heartbeat)
	}
	return h
}

// look looks at all files, in the order of the workers. It leaves a goroutine behind for as long as the file system does not answer, one at
// most.
func (h *heartbeats) look() []heartbeat {
	if h.answers == nil {
		answers := make(chan []heartbeat, 1)
		h.answers = answers
		before := h.seen // nobody changes what it holds
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

// keepFolder makes the folder anew where somebody has removed it; false: workers find another user's in its place.
func (h *heartbeats) keepFolder() bool {
	if h.folder == nil {
		return true
	}
	switch gone, err := h.folder.restore(); {
	case errors.Is(err, errTaken):
		h.taken.Do(func() {
			h.log.Warn("the folder of the workers' heartbeat files was removed, and somebody else has made one of its "+
				"name; as long as that is "+
				"there a worker that has beaten before is not taken for hung, and of the others output and CPU time count", "path",
				h.folder.path)
		})
		return false
	case gone:
		h.removed.Do(func() {
			h.log.Warn("the folder of the workers' heartbeat files was removed, and is made anew; until they use it, "+
				"output and CPU time count "+
				"(systemd-logind empties a user's /dev/shm at the last logout: RemoveIPC in logind.conf)", "path",
				h.folder.path, "error", err)
		})
	}
	return true
}

// unknown returns what to go by while the files cannot be looked at: a worker that has changed its file before counts as alive now, and
// nothing is known of the others.
func unknown(before []heartbeat) []heartbeat {
	now := make([]heartbeat, len(before))
	for i := range now {
		if !before[i].at.IsZero() {
			now[i].at = time.Now()
		}
	}
	return now
}

// read looks at each file; what cannot be told now is as before.
func (h *heartbeats) read(before []heartbeat) []heartbeat {
	now := slices.Clone(before)
	for i, path := range h.paths {
		switch info, err := os.Lstat(path); {
		case err == nil && now[i].known && info.ModTime().Equal(now[i].at): // it has been read
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

// open reads what is in a file, and when it was changed, if it has a step. It follows no link and waits for nobody.
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
