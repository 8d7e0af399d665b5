package supervise

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"ddpbatch/internal/pause"
	"ddpbatch/mpi/launch/rendezvous"
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

// heartbeats looks when the workers' heartbeat files were changed, and keeps their folder there. Where they lie on a file server, that may
// not answer for long: then what was seen before counts.
type heartbeats struct {
	folder  *privateFolder // nil: there are no files
	log     *slog.Logger
	removed sync.Once // was told
	taken   sync.Once // was told
	paths   []string
	seen    []time.Time
	answers chan []time.Time // nil: nothing is being asked
}

func newHeartbeats(r *round, workers []*worker) *heartbeats {
	h := &heartbeats{folder: r.private, log: r.cfg.Log, seen: make([]time.Time, len(workers))}
	for _, w := range workers {
		h.paths = append(h.paths, w.files.heartbeat)
	}
	return h
}

// look returns the times, zero where there is no file, or nobody has changed it. It leaves a goroutine behind for as long as the file
// system does not answer, one at most.
func (h *heartbeats) look() []time.Time {
	if h.answers == nil {
		answers := make(chan []time.Time, 1)
		h.answers = answers
		before := h.seen // nobody changes what it holds
		go func() {
			if h.keepFolder() {
				answers <- changed(h.paths, before)
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
			h.log.Warn("the folder of the workers' heartbeat files was removed, and somebody else has made one of its name; as long as that is "+
				"there a worker that has beaten before is not taken for hung, and of the others output and CPU time count", "path", h.folder.path)
		})
		return false
	case gone:
		h.removed.Do(func() {
			h.log.Warn("the folder of the workers' heartbeat files was removed, and is made anew; until they use it, output and CPU time count "+
				"(systemd-logind empties a user's /dev/shm at the last logout: RemoveIPC in logind.conf)", "path", h.folder.path, "error", err)
		})
	}
	return true
}

// unknown returns the times to go by while the files cannot be looked at: a worker that has changed its file before counts as alive now,
// and nothing is known of the others.
func unknown(before []time.Time) []time.Time {
	times := slices.Clone(before)
	for i := range times {
		if !times[i].IsZero() {
			times[i] = time.Now()
		}
	}
	return times
}

// changed is when each file was changed; what cannot be told now is as before.
func changed(paths []string, before []time.Time) []time.Time {
	times := slices.Clone(before)
	for i, path := range paths {
		switch info, err := os.Lstat(path); {
		case err == nil && !info.ModTime().Equal(unused):
			times[i] = info.ModTime()
		case err == nil, errors.Is(err, fs.ErrNotExist): // "", too
			times[i] = time.Time{}
		}
	}
	return times
}
