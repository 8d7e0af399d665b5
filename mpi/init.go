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

// Init makes this process rank cfg.Rank of a group of cfg.Size. It returns when
// every rank has been connected to every other.
//
// It gives up when ctx ends, or after cfg.Config.Timeout; the error is then a
// [transport.MissingError], which names the ranks that were not met. Once all are connected, they measure what messages cost and share
// memory: then it gives up after cfg.Config.Timeout without progress, as all calls do, and names the rank that does not answer. A rank
// with another secret, run or attempt is refused, and logged; one with another Size, or of a number
// that is there already, gives up at once.
//
// A store serves one group of an attempt: give further ones another Group name, or make them of this one
// with Split.
func Init(ctx context.Context, cfg InitConfig) (*Comm, error) {
	c, err := connect(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("init rank %d of %d: %w", cfg.Rank, cfg.Size, err)
	}
	return c, nil
}

// InitLocal makes the Comms of all ranks of a network within this process, by rank. A Comm is for the goroutine that plays its
// rank. Only the Config, the Flight and the Log of cfg are used; each rank's Flight has its number after it, as in "flight.3".
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

// Self is the communicator of a world of one.
func Self() *Comm { return newSelf(InitConfig{Config: DefaultConfig()}) }

func connect(ctx context.Context, cfg InitConfig) (*Comm, error) {
	if !littleEndian() {
		return nil, errors.New("this machine is big-endian; ranks exchange little-endian memory")
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
	return join(ctx, fabric, cfg) // its time-out is that of all calls, which finds out what the rank does that it waits for
}

// newSelf is Self with a configuration.
func newSelf(cfg InitConfig) *Comm {
	return &Comm{core: &core{world: newWorldOf(cfg), members: []int{0}, owner: true}}
}

// worldID is the number of the group of all ranks.
const worldID = 1

// join makes the Comm of all ranks on their links, which it takes over.
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

// setupBit tells the group in which a Comm is made from the Comm's own, whose calls are numbered from 1.
const setupBit = 1 << 63

// assemble makes this rank's part in a group, once its ranks have done together what it takes: first, if that is not nil,
// and to share memory.
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
			setup.group.Fail(err) // or the others would hear no more than that this rank has left
		}
	}
	if err == nil {
		err = setup.share(ctx, k)
	}
	if err != nil {
		k.group.Close() // others may have got further
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

// label says who this process is, for the errors of others.
func label() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("%s, pid %d", host, os.Getpid())
}

// world is what all Comms of one Init share.
type world struct {
	engine   *engine.Engine // nil where the world is one rank
	config   Config
	recorder *recorder
	log      *slog.Logger
	messages sync.Pool // of *message

	mu        sync.Mutex
	children  map[*core]struct{} // the Comms that were made of that of Init, and are not closed
	flight    string             // file to write the recorder to at the first failure, or empty
	initStore *initStore         // what InitEnv or InitMethod opened, or nil

	sockets   *transport.Sockets // nil where all ranks are in this process, or there is one
	near, far model.Costs        // what messages cost within a machine and between machines
	machines  []int              // by world rank: the lowest rank on the same machine, of those that share memory with it
}

// newWorldOf is a world that has no connections yet.
func newWorldOf(cfg InitConfig) *world {
	return &world{
		config: cfg.Config.complete(), recorder: newRecorder(), flight: cfg.Flight, log: cmp.Or(cfg.Log, slog.New(slog.DiscardHandler)),
		near: model.Uniform(defaultMachine), far: model.Uniform(defaultMachine),
	}
}

// addChild notes a Comm that was made of another, to be closed with the world.
func (w *world) addChild(k *core) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.children == nil {
		w.children = make(map[*core]struct{})
	}
	w.children[k] = struct{}{}
}

// removeChild notes that it is closed.
func (w *world) removeChild(k *core) {
	w.mu.Lock()
	delete(w.children, k)
	w.mu.Unlock()
}

// close ends the connections.
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
