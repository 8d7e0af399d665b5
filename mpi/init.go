package mpi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"

	"ddpbatch/mpi/internal/engine"
	"ddpbatch/mpi/internal/model"
	"ddpbatch/mpi/store"
	"ddpbatch/mpi/transport"
)

// Init makes this process rank cfg.Rank of a group of cfg.Size ranks. It returns when every rank is connected to every other.
//
// Init gives up when ctx ends, or after cfg.Config.Timeout. The error is then a [transport.MissingError], which names the ranks that did
// not connect. Once all are connected, they measure the cost of messages and set up shared memory. In that phase Init gives up after
// cfg.Config.Timeout without progress, as all calls do, and the error names the rank that does not answer. A rank with another secret, run
// or attempt is refused, and the refusal is logged. A rank with another Size, or with a number that is taken already, gives up at once.
//
// A store serves one group in an attempt. For further groups use another Group name, or make them from this one with Split.
func Init(ctx context.Context, cfg InitConfig) (*Comm, error) {
	c, err := connect(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("init rank %d of %d: %w", cfg.Rank, cfg.Size, err)
	}
	return c, nil
}

// InitLocal makes the Comms of all ranks of a network within this process, and returns them by rank. Each Comm is for the goroutine that
// acts as its rank. InitLocal uses only Config, Flight and Log of cfg. Each rank's Flight ends with its number, as in "flight.3".
func InitLocal(ctx context.Context, network *transport.Network, cfg InitConfig) ([]*Comm, error) {
	if err := cfg.Config.Validate(); err != nil {
		return nil, fmt.Errorf("init within one process: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	comms := make([]*Comm, network.Size())
	errs := make([]error, network.Size())
	var tasks sync.WaitGroup
	for rank := range comms {
		tasks.Go(func() {
			cfg := cfg
			if cfg.Flight != "" {
				cfg.Flight += fmt.Sprintf(".%d", rank)
			}
			fabric, err := network.Fabric(rank)
			if err == nil {
				comms[rank], err = join(ctx, fabric, cfg)
			}
			if err != nil {
				errs[rank] = fmt.Errorf("init rank %d within one process: %w", rank, err)
				cancel()
			}
		})
	}
	tasks.Wait()
	err := errors.Join(errs...)
	if err == nil {
		return comms, nil
	}
	for _, c := range comms {
		if c != nil {
			c.Close()
		}
	}
	return nil, err
}

// Self returns the Comm of a world of one rank.
func Self() *Comm { return newSelf(InitConfig{Config: DefaultConfig()}) }

func connect(ctx context.Context, cfg InitConfig) (*Comm, error) {
	if !littleEndian() {
		return nil, errors.New("this machine is big-endian: ranks exchange elements in little-endian order only")
	}
	if err := cfg.Config.Validate(); err != nil {
		return nil, err
	}
	if cfg.Size == 1 && cfg.Rank == 0 {
		return newSelf(cfg), nil
	}
	rendezvous, cancel := context.WithTimeout(ctx, cfg.Config.timeout())
	defer cancel()
	fabric, err := transport.Connect(rendezvous, transport.Config{
		Rank: cfg.Rank, Size: cfg.Size, Listen: cfg.Listen,
		Directory: store.Prefix(cfg.Store, cfg.prefix()),
		Secret:    cfg.Secret, Run: cfg.Run, Attempt: cfg.Attempt,
		Sharing: cfg.Config.sharing(), UCX: cfg.Config.ucx(), Streams: cfg.Config.Streams, Encrypt: cfg.Config.Encrypt,
		OwnCores: cfg.OwnCores, Log: cfg.Log,
	})
	if err != nil {
		return nil, err
	}
	return join(ctx, fabric, cfg) // with the time-out of all calls, whose error says what the rank does that this one waits for
}

// newSelf is Self with a configuration.
func newSelf(cfg InitConfig) *Comm {
	return &Comm{core: &core{world: newWorldOf(cfg), members: []int{0}, owner: true}}
}

// worldID is the number of the group of all ranks.
const worldID = 1

// join makes the Comm of all ranks from their links. It owns the fabric from then on.
func join(ctx context.Context, fabric transport.Fabric, cfg InitConfig) (*Comm, error) {
	w := newWorldOf(cfg)
	w.sockets, _ = fabric.(*transport.Sockets)
	w.engine = engine.New(fabric, engine.Options{
		Timeout: w.config.Timeout, Describe: describe, DescribeFully: describeFully, Label: label(),
	})
	members := make([]int, fabric.Size())
	for rank := range members {
		members[rank] = rank
	}
	c, err := w.assemble(ctx, worldID, members, func(setup *core) error { return setup.discover(ctx, fabric.Shared()) })
	if err != nil {
		return nil, errors.Join(err, w.engine.Close())
	}
	c.core.owner = true
	return c, nil
}

// setupBit distinguishes the group that sets up a Comm from the Comm's own, whose calls are numbered from 1.
const setupBit = 1 << 63

// assemble makes this rank's Comm in a group. Before that, its ranks run first together, if it is not nil, and set up shared memory.
func (w *world) assemble(ctx context.Context, id uint64, members []int, first func(setup *core) error) (*Comm, error) {
	setup, err := w.newCore(id|setupBit, members)
	if err != nil {
		return nil, err
	}
	defer setup.group.Retire()
	k, err := w.newCore(id&^setupBit, members)
	if err != nil {
		return nil, err
	}
	if first != nil {
		if err = first(setup); err != nil {
			setup.group.Fail(err) // otherwise the others would only learn that this rank has left
		}
	}
	if err == nil {
		err = setup.share(ctx, k)
	}
	if err != nil {
		k.group.Close() // other ranks may have got further
		return nil, errors.Join(err, k.releaseMemory())
	}
	return &Comm{core: k}, nil
}

func (w *world) newCore(id uint64, members []int) (*core, error) {
	group, err := w.engine.Group(id, members)
	if err != nil {
		return nil, err
	}
	k := &core{world: w, group: group, members: members}
	k.port.group = group
	return k, nil
}

// label names this process in the errors of other ranks.
func label() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("%s, pid %d", host, os.Getpid())
}

// world is what all Comms of one Init share.
type world struct {
	engine   *engine.Engine // nil in a world of one rank
	config   Config
	recorder *recorder
	log      *slog.Logger
	messages sync.Pool // of *message

	mu        sync.Mutex
	children  map[*core]struct{} // the Comms that were made from that of Init and are not closed
	flight    string             // the file for the recorder, written at the first failure, or empty
	initStore *initStore         // what InitEnv or InitMethod opened, or nil

	sockets   *transport.Sockets // nil if all ranks are in this process, or if there is only one
	near, far model.Costs        // the costs of messages within a machine and between machines
	machines  []int              // by world rank: the lowest of the ranks that share memory with it, which stands for its machine
}

// newWorldOf returns a world without connections.
func newWorldOf(cfg InitConfig) *world {
	return &world{
		config: cfg.Config.complete(), recorder: newRecorder(), flight: cfg.Flight, log: cmp.Or(cfg.Log, slog.New(slog.DiscardHandler)),
		near: model.Uniform(defaultMachine), far: model.Uniform(defaultMachine),
	}
}

// addChild registers a Comm that was made from another, so that it is closed with the world.
func (w *world) addChild(k *core) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.children == nil {
		w.children = make(map[*core]struct{})
	}
	w.children[k] = struct{}{}
}

// removeChild removes a Comm that is closed.
func (w *world) removeChild(k *core) {
	w.mu.Lock()
	delete(w.children, k)
	w.mu.Unlock()
}

// close closes the Comms that were made from Init's, and ends the connections.
func (w *world) close(broken bool) error {
	var errs []error
	w.mu.Lock()
	made := slices.Collect(maps.Keys(w.children))
	w.mu.Unlock()
	for _, k := range made {
		errs = append(errs, (&Comm{core: k}).Close())
	}
	if w.engine != nil {
		errs = append(errs, w.engine.Close())
	}
	switch {
	case w.initStore == nil:
	case broken:
		errs = append(errs, w.initStore.abandon())
	default:
		errs = append(errs, w.initStore.close())
	}
	return errors.Join(errs...)
}
