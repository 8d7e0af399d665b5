package mpi

import (
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"ddpbatch/mpi/internal/algorithm"
	"ddpbatch/mpi/internal/engine"
)

// world is what all Comms of one Init share.
type world struct {
	engine   *engine.Engine // nil where the world is one rank
	config   Config
	recorder *recorder
	tables   *tables
	log      *slog.Logger
	messages sync.Pool // of *message

	mu     sync.Mutex
	made   map[*core]struct{} // the Comms that were made of that of Init, and are not closed
	flight string             // file to write the recorder to at the first failure, or empty
	met    *rendezvous        // what InitEnv opened, or nil

	near, far algorithm.Machine // what messages cost within a machine and between machines
	machines  []int             // by world rank: the lowest rank on the same machine
}

// begun is a world that has no connections yet.
func begun(cfg InitConfig) *world {
	log := cfg.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &world{
		config: cfg.Config.complete(), recorder: newRecorder(), tables: newTables(), flight: cfg.Flight, log: log,
		near: defaultMachine, far: defaultMachine,
	}
}

// keep notes a Comm that was made of another, to be closed with the world.
func (w *world) keep(k *core) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.made == nil {
		w.made = make(map[*core]struct{})
	}
	w.made[k] = struct{}{}
}

// forget notes that it is closed.
func (w *world) forget(k *core) {
	w.mu.Lock()
	delete(w.made, k)
	w.mu.Unlock()
}

// close ends the connections.
func (w *world) close(broken bool) error {
	var errs []error
	w.mu.Lock()
	made := slices.Collect(maps.Keys(w.made))
	w.mu.Unlock()
	for _, k := range made {
		errs = append(errs, (&Comm{core: k}).Close())
	}
	if w.engine != nil {
		errs = append(errs, w.engine.Close())
	}
	switch {
	case w.met == nil:
	case broken:
		errs = append(errs, w.met.abandon())
	default:
		errs = append(errs, w.met.close())
	}
	return errors.Join(errs...)
}

// message finds room for a message.
func (w *world) message() *message {
	if m, ok := w.messages.Get().(*message); ok {
		return m
	}
	return new(message)
}

// recycle takes the room of a message that is done.
func (w *world) recycle(m *message) { w.messages.Put(m) }
