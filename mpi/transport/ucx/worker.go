package ucx

import (
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/clib"
)

// MaxRanks is the largest world size with UCX: tags have room for so many ranks.
const MaxRanks = 1 << rankBits

// Config configures Open.
type Config struct {
	Rank, Size int
	Devices    []Device // to use; empty leaves the choice to UCX
	Verbs      bool     // use only verbs: UCX's TCP is slower than Go's, and ranks of one machine share memory in another way
}

// Worker is one rank's end of UCX: its links, their memory, and its events. Its methods, and those of its links, are safe for
// concurrent use. CloseLinks, ProgressUntil and Try wait; while CloseLinks waits, all other methods block.
type Worker struct {
	lib  *library
	rank int

	mu      sync.Mutex // UCX allows one caller at a time
	context uintptr    // ucp_context_h
	worker  uintptr    // ucp_worker_h
	address []byte
	event   int
	slab    slab
	links   map[int]*Link // by rank
	news    []*Link       // links that Ready has not returned yet
	waiting []*Link       // links on which Read or Write had to wait for UCX
	blocks  *blocks
	isIdle  bool // UCX had nothing to do in its last progress
	closed  bool
}

// blocks are memory that C reads and writes in calls. They are on the heap, which Go does not move, and guarded by mu.
type blocks struct {
	call    clib.Call
	request requestParams
	info    tagInfo
	out     [2]uintptr
}

// Open loads UCX and opens a worker, with registered memory for its first messages.
func Open(cfg Config) (_ *Worker, err error) {
	if cfg.Size > MaxRanks {
		return nil, fmt.Errorf("%d ranks are more than UCX supports here (%d)", cfg.Size, MaxRanks)
	}
	lib, err := loadOnce()
	if err != nil {
		return nil, err
	}
	if cfg.Verbs || len(cfg.Devices) > 0 {
		if err := tryLimit(lockedBytes); err != nil {
			return nil, err
		}
	}
	w := &Worker{lib: lib, rank: cfg.Rank, links: map[int]*Link{}, blocks: clib.New[blocks]()}
	err = clib.WithoutSignals(func() error { return w.open(cfg) }) // UCX starts a thread
	if err != nil {
		w.destroy()
		return nil, err
	}
	return w, nil
}

func (w *Worker) open(cfg Config) error {
	if err := w.openContext(cfg); err != nil {
		return err
	}
	return w.openWorker()
}

// do calls a function of UCX. mu is held, or no other goroutine has w yet.
func (w *Worker) do(f clib.Function, args ...uintptr) uintptr { return w.blocks.call.Do(f, args...) }

func (w *Worker) openContext(cfg Config) error {
	f, out := &w.lib.fn, &w.blocks.out
	if s := ucsStatus(w.do(f.configRead, 0, 0, clib.Address(&out[0]))); s != statusOK {
		return w.lib.error("read UCX's configuration (UCX_* in the environment, ucx.conf)", s)
	}
	config := out[0]
	defer w.do(f.configRelease, config)
	settings := map[string]string{"NET_DEVICES": deviceNames(cfg.Devices)}
	if cfg.Verbs {
		settings["TLS"] = "ib"
	}
	for key, value := range settings {
		if value == "" {
			continue
		}
		k, v := clib.Text(key), clib.Text(value)
		s := ucsStatus(w.do(f.configModify, config, clib.Address(&k[0]), clib.Address(&v[0])))
		runtime.KeepAlive(k)
		runtime.KeepAlive(v)
		if s != statusOK {
			return w.lib.error(fmt.Sprintf("set UCX_%s to %s", key, value), s)
		}
	}
	p := clib.New[contextParams]()
	*p = contextParams{
		fields: contextFeatures | contextEstimatedPeers, features: featureTag | featureWakeup, estimatedPeers: uint64(cfg.Size),
	}
	s := ucsStatus(w.do(f.initVersion, uintptr(oldest.Major), uintptr(oldest.Minor), clib.Address(p), config, clib.Address(&out[1])))
	runtime.KeepAlive(p)
	if s != statusOK {
		return w.lib.error("open UCX", s)
	}
	w.context = out[1]
	return nil
}

func (w *Worker) openWorker() error {
	f, out := &w.lib.fn, &w.blocks.out
	p := clib.New[workerParams]()
	p.fields, p.threadMode = workerThreadMode, threadsSerialized
	s := ucsStatus(w.do(f.workerCreate, w.context, clib.Address(p), clib.Address(&out[0])))
	runtime.KeepAlive(p)
	if s != statusOK {
		return w.lib.error("open a UCX worker", s)
	}
	w.worker = out[0]
	if s := ucsStatus(w.do(f.workerAddress, w.worker, clib.Address(&out[0]), clib.Address(&out[1]))); s != statusOK {
		return w.lib.error("ask UCX for this rank's address", s)
	}
	start := *(*unsafe.Pointer)(unsafe.Pointer(&out[0])) // C's memory, converted in a way that vet accepts
	w.address = append([]byte(nil), unsafe.Slice((*byte)(start), out[1])...)
	w.do(f.releaseAddress, w.worker, out[0])
	if s := ucsStatus(w.do(f.workerFD, w.worker, clib.Address(&out[0]))); s != statusOK {
		return w.lib.error("ask UCX for its event descriptor", s)
	}
	w.event = int(*(*int32)(unsafe.Pointer(&out[0])))
	return nil
}

// Version and File are the library's version and path.
func (w *Worker) Version() Version { return w.lib.version }
func (w *Worker) File() string     { return w.lib.file }

// Address is the address that another rank passes to Connect to reach this one.
func (w *Worker) Address() []byte { return w.address }

// Connect makes the link to a rank whose address is addr. The first message connects.
func (w *Worker) Connect(rank int, addr []byte) (*Link, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(addr) == 0 {
		return nil, fmt.Errorf("connect to rank %d by UCX: it has no address", rank)
	}
	l := &Link{worker: w, rank: rank, address: clib.Buffer(len(addr)), tag: uint64(w.rank) << rankShift}
	copy(l.address, addr)
	w.links[rank] = l
	return l, nil
}

// Alloc returns n zero bytes from which messages are sent, and into which they are received, without a copy. They stay mapped until
// the worker is destroyed or, if it never is, until the process ends.
func (w *Worker) Alloc(n int) ([]byte, error) {
	r, err := mapRegion(n)
	if err != nil {
		return nil, err
	}
	if err := w.Register(r.memory, r.release); err != nil {
		r.release()
		return nil, err
	}
	return r.memory, nil
}

// Register makes messages be sent from memory, and received into it, without a copy. The memory must not be Go's, and must stay
// mapped until release is called: when the worker is destroyed, or never if it is not.
func (w *Worker) Register(memory []byte, release func()) error {
	_ = unix.Madvise(memory, unix.MADV_POPULATE_WRITE) // done before others must wait for the worker; kernels before 5.14 do not support it
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return errClosed
	}
	r := regionOf(memory)
	r.release = release
	return w.register(r)
}

// growSlab maps and registers memory for messages that are copied. mu is held.
func (w *Worker) growSlab() ([]byte, error) {
	r, err := mapRegion(regionBytes)
	if err != nil {
		return nil, err
	}
	if err := w.register(r); err != nil {
		r.release()
		return nil, err
	}
	return r.memory, nil
}

// register registers a region with UCX. mu is held.
func (w *Worker) register(r region) error {
	p := clib.New[mapParams]()
	p.fields, p.address, p.length = mapAddress|mapLength, r.base, uint64(len(r.memory))
	s := ucsStatus(w.do(w.lib.fn.memoryMap, w.context, clib.Address(p), clib.Address(&w.blocks.out[0])))
	runtime.KeepAlive(p)
	if s != statusOK {
		const hint = "is `ulimit -l`, the memory a process may lock, unlimited in jobs?"
		return w.lib.error(fmt.Sprintf("register %d bytes with the network card (%s)", len(r.memory), hint), s)
	}
	r.registered = w.blocks.out[0]
	w.slab.add(r)
	return nil
}
