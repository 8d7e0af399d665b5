package shm

import (
	"bufio"
	"encoding/gob"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/internal/element"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

var errGroupFailed = errors.New("the group has failed")

// testWaiter spins, and yields its processor from time to time.
type testWaiter struct {
	failed *atomic.Bool
	spins  int
	yield  func()
	jitter *rand.Rand // if not nil, some ranks fall behind from time to time
}

func (w *testWaiter) Await(ready func() bool) error {
	for i := 1; !ready(); i++ {
		if i%w.spins != 0 {
			continue
		}
		if w.failed.Load() {
			return errGroupFailed
		}
		w.yield()
	}
	return nil
}

func (w *testWaiter) Entered() error {
	w.Notify()
	return nil
}

// Notify sometimes lets the others get as far ahead as they can.
func (w *testWaiter) Notify() {
	if w.jitter != nil && w.jitter.IntN(8) == 0 {
		for range 100 {
			w.yield()
		}
	}
}

// newWaiter returns a waiter for ranks that are goroutines.
func newWaiter(failed *atomic.Bool) *testWaiter {
	return &testWaiter{failed: failed, spins: 50, yield: runtime.Gosched}
}

func schedYield() { unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// member is one rank of a test's group.
type member struct {
	rank, size   int
	node         *Node
	w            *testWaiter
	p            *testPort
	area, region *Segment
	opened       []*Segment
	readable     bool   // the rank can read the others' memory
	out          []byte // the output of a workload
	sent, got    *Ring  // between ranks 0 and 1
}

// regionSize is the length in bytes of the registered memory of each member.
const regionSize = 64 << 20

func newMember(rank, size int) (*member, error) {
	m := &member{rank: rank, size: size, w: newWaiter(new(atomic.Bool)), p: new(testPort)}
	var err error
	if m.area, err = Create(AreaSize); err != nil {
		return nil, err
	}
	m.region, err = Create(regionSize)
	return m, err
}

// join opens the segments of the others. handles has those of the areas, and then those of the regions, by rank.
func (m *member) join(handles [2][][HandleSize]byte) error {
	var segments [2][]*Segment
	for kind, of := range handles {
		for rank, encoded := range of {
			own := []*Segment{m.area, m.region}[kind]
			if rank != m.rank {
				h, err := DecodeHandle(encoded[:])
				if err != nil {
					return err
				}
				if own, err = Open(h); err != nil {
					return err
				}
				m.opened = append(m.opened, own)
			}
			segments[kind] = append(segments[kind], own)
		}
	}
	var err error
	m.readable = !slices.ContainsFunc(segments[0], func(s *Segment) bool { return !s.ReadsOwner() })
	if m.node, err = NewNode(m.rank, segments[0], m.readable); err != nil {
		return err
	}
	return m.node.Register(segments[1])
}

func (m *member) close() {
	for _, s := range append(m.opened, m.area, m.region) {
		if s != nil {
			s.Close()
		}
	}
}

// group returns members in this process, each with mappings of its own.
func group(t testing.TB, size int) []*member {
	t.Helper()
	members := make([]*member, size)
	var handles [2][][HandleSize]byte
	failed := new(atomic.Bool)
	for rank := range members {
		m, err := newMember(rank, size)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.close)
		m.w.failed = failed
		members[rank] = m
		handles[0] = append(handles[0], m.area.Handle().Encode())
		handles[1] = append(handles[1], m.region.Handle().Encode())
	}
	connectPorts(members)
	for _, m := range members {
		if err := m.join(handles); err != nil {
			t.Fatal(err)
		}
	}
	return members
}

// together runs f for all members at once. The first error ends the waits of the others.
func together(members []*member, f func(m *member) error) []error {
	return testkit.Each(len(members), func(rank int) error {
		err := f(members[rank])
		if err != nil {
			members[rank].w.failed.Store(true)
		}
		return err
	})
}

// rankVariable makes the test binary run as one rank of a group of processes.
const rankVariable = "SHM_TEST_RANK"

func TestMain(m *testing.M) {
	if rank := os.Getenv(rankVariable); rank != "" {
		if err := rankMain(rank); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// order is a command of the parent to a rank process.
type order struct {
	Handles  [2][][HandleSize]byte // in the first order
	Workload string
	Bytes    int
	Rounds   int
	Shared   bool // buffers are registered
}

// answer is what a rank process answers.
type answer struct {
	Handles [2][HandleSize]byte // in the first answer
	Err     string
}

// rankMain runs a rank process. It sends its handles, gets those of all ranks, and runs workloads.
func rankMain(variable string) error {
	var rank, size int
	if _, err := fmt.Sscanf(variable, "%d/%d", &rank, &size); err != nil {
		return err
	}
	m, err := newMember(rank, size)
	if err != nil {
		return err
	}
	m.w.yield, m.w.spins = schedYield, spinsFor(size)
	in, out := gob.NewDecoder(bufio.NewReader(os.Stdin)), gob.NewEncoder(os.Stdout)
	if err := out.Encode(answer{Handles: [2][HandleSize]byte{m.area.Handle().Encode(), m.region.Handle().Encode()}}); err != nil {
		return err
	}
	for first := true; ; first = false {
		var o order
		if err := in.Decode(&o); err != nil {
			return nil // the parent has ended
		}
		var r answer
		if first {
			err = m.join(o.Handles)
		} else {
			err = m.run(o)
		}
		if err != nil {
			r.Err = fmt.Sprintf("rank %d: %v", rank, err)
		}
		if err := out.Encode(r); err != nil {
			return err
		}
	}
}

// spinsFor returns fewer spins if ranks share a processor, so that they yield it early.
func spinsFor(size int) int {
	if size <= runtime.NumCPU() {
		return 10000
	}
	return 20
}

// processes is a group in which rank 0 is this process, and the others are processes of their own.
type processes struct {
	*member
	cmds []*exec.Cmd
	in   []*gob.Encoder
	out  []*gob.Decoder
}

func startProcesses(t testing.TB, size int) *processes {
	t.Helper()
	m, err := newMember(0, size)
	if err != nil {
		t.Fatal(err)
	}
	m.w.yield, m.w.spins = schedYield, spinsFor(size)
	t.Cleanup(m.close)
	p := &processes{member: m}
	var handles [2][][HandleSize]byte
	add := func(area, region [HandleSize]byte) {
		handles[0] = append(handles[0], area)
		handles[1] = append(handles[1], region)
	}
	add(m.area.Handle().Encode(), m.region.Handle().Encode())
	for rank := 1; rank < size; rank++ {
		p.start(t, rank, size)
		var r answer
		if err := p.out[rank-1].Decode(&r); err != nil {
			t.Fatal(err)
		}
		add(r.Handles[0], r.Handles[1])
	}
	p.each(t, order{Handles: handles}, func() error { return m.join(handles) })
	return p
}

func (p *processes) start(t testing.TB, rank, size int) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), rankVariable+"="+strconv.Itoa(rank)+"/"+strconv.Itoa(size))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	p.cmds, p.in, p.out = append(p.cmds, cmd), append(p.in, gob.NewEncoder(in)), append(p.out, gob.NewDecoder(bufio.NewReader(out)))
}

// each has all other processes follow an order, and runs f in this one.
func (p *processes) each(t testing.TB, o order, f func() error) {
	t.Helper()
	for _, in := range p.in {
		if err := in.Encode(o); err != nil {
			t.Fatal(err)
		}
	}
	if err := f(); err != nil {
		t.Fatalf("rank 0: %v", err)
	}
	for _, out := range p.out {
		var r answer
		if err := out.Decode(&r); err != nil || r.Err != "" {
			t.Fatalf("%v; %s", err, r.Err)
		}
	}
}

// run has all ranks run a workload.
func (p *processes) run(t testing.TB, o order) {
	t.Helper()
	p.each(t, o, func() error { return p.member.run(o) })
}

// run runs the workload of a benchmark, or of a test that checks every result.
func (m *member) run(o order) error {
	if o.Workload == "verify" {
		return m.verify(1, o.Rounds)
	}
	work, ok := workloads[o.Workload]
	if !ok {
		return fmt.Errorf("no workload %q", o.Workload)
	}
	buf := make([]byte, o.Bytes)
	if o.Shared {
		buf = m.region.Bytes()[:o.Bytes]
	}
	at := make([]int, m.size+1)
	for i := range at {
		at[i] = o.Bytes * i / m.size / 4 * 4
	}
	at[m.size] = o.Bytes
	m.out = make([]byte, o.Bytes)
	for range o.Rounds {
		if err := work(m, buf, at); err != nil {
			return err
		}
	}
	return nil
}

// addFloats sums float32, as training does.
var addFloats = func() *Reduction {
	kernel, err := element.KernelOf(element.Float32, element.Sum)
	if err != nil {
		panic(err)
	}
	kernel2, _ := element.Kernel2Of(element.Float32, element.Sum)
	return &Reduction{Kernel: kernel, Kernel2: kernel2, Size: 4}
}()

var workloads = map[string]func(m *member, buf []byte, at []int) error{
	"all_reduce": func(m *member, buf []byte, at []int) error {
		return m.node.AllReduce(m.w, Fingerprint{1}, buf, addFloats)
	},
	"reduce": func(m *member, buf []byte, at []int) error {
		return m.node.Reduce(m.w, Fingerprint{2}, buf, 0, addFloats)
	},
	"broadcast": func(m *member, buf []byte, at []int) error {
		return m.node.Broadcast(m.w, Fingerprint{3}, buf, 0)
	},
	"all_gather": func(m *member, buf []byte, at []int) error {
		return m.node.AllGather(m.w, Fingerprint{4}, buf, at, block(buf, at, m.rank))
	},
	"reduce_scatter": func(m *member, buf []byte, at []int) error {
		return m.node.ReduceScatter(m.w, Fingerprint{5}, m.out[:at[m.rank+1]-at[m.rank]], buf, at, addFloats)
	},
	"all_to_all": func(m *member, buf []byte, at []int) error {
		return m.node.AllToAll(m.w, Fingerprint{7}, m.out, buf, at)
	},
	"scatter": func(m *member, buf []byte, at []int) error {
		return m.node.Scatter(m.w, m.p, Fingerprint{8}, m.out[:at[1]], buf, at, 0)
	},
	"gather": func(m *member, buf []byte, at []int) error {
		return m.node.Gather(m.w, m.p, Fingerprint{9}, m.out, at, buf[:at[1]], 0)
	},
	"scan": func(m *member, buf []byte, at []int) error {
		return m.node.Scan(m.w, Fingerprint{10}, buf, addFloats)
	},
	"ping_pong": func(m *member, buf []byte, at []int) error {
		m.connect()
		for writer := range 2 {
			if writer == m.rank {
				if err := m.send(buf); err != nil {
					return err
				}
			} else if err := m.receive(buf); err != nil {
				return err
			}
		}
		return nil
	},
	"barrier": func(m *member, buf []byte, at []int) error {
		return m.node.Barrier(m.w, Fingerprint{6})
	},
}

const (
	ringCapacity = 256 << 10
	ringHead     = 40 // bytes before each message
)

// connect places a ring in the registered memory of each of two ranks, which goes to the other.
func (m *member) connect() {
	if m.sent == nil {
		region := m.node.regions[0]
		m.sent = NewRing(region[m.rank][regionSize/2:][:RingOverhead+ringCapacity])
		m.got = NewRing(region[1-m.rank][regionSize/2:][:RingOverhead+ringCapacity])
	}
}

func (m *member) send(body []byte) error {
	var head [ringHead]byte
	h := head[:]
	for {
		n, err := m.sent.Write(h, body)
		if err != nil {
			return err
		}
		cut := min(n, len(h))
		if h, body = h[cut:], body[n-cut:]; len(h)+len(body) == 0 {
			return nil
		}
		if err := m.w.Await(func() bool { return writable(m.sent) }); err != nil {
			return err
		}
	}
}

func (m *member) receive(body []byte) error {
	var head [ringHead]byte
	for _, part := range [2][]byte{head[:], body} {
		for len(part) > 0 {
			if err := m.w.Await(func() bool { return readable(m.got) }); err != nil {
				return err
			}
			n, err := m.got.Read(part)
			if err != nil {
				return err
			}
			part = part[n:]
		}
	}
	return nil
}

// writable reports whether Write has room, or an error to report.
func writable(r *Ring) bool {
	free, err := r.free(1)
	return free > 0 || err != nil
}

// readable reports whether Read has bytes, or an error to report.
func readable(r *Ring) bool {
	held, err := r.held(1)
	return held > 0 || err != nil
}
