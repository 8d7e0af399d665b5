package distributed

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/testkit"
	"ddpbatch/internal/testkit/vfstest"
	"ddpbatch/internal/vfs"

	"go.uber.org/goleak"
)

const (
	sharedPath = "/shared/run/checkpoints"
	localPath  = "/scratch"
)

// trial is one attempt of a run in this process. Its ranks train a state that is a function of the step.
type trial struct {
	world   int
	attempt int
	o       Options
	codec   string // "" means "none"
	keep    checkpoint.Policy
	fence   func() error
	fs      func(rank int) vfs.FS
	group   *goroutineGroup            // nil means a new one
	arrays  func(rank int) []Array     // nil means arraysOf
	each    func(rank int, o *Options) // if not nil, sets the options of a rank that differ between ranks
}

// one is a rank of a trial.
type one struct {
	*Saver
	rank   int
	arrays []Array
}

// run runs f on every rank and returns the errors of the ranks, including those of New and Close.
func (tr trial) run(ctx context.Context, f func(ctx context.Context, r *one) error) []error {
	m := tr.group
	if m == nil {
		m = newGoroutineGroup(tr.world)
	}
	return testkit.Each(tr.world, func(rank int) error {
		err := tr.rank(ctx, m.member(rank), f)
		if errors.Is(err, errDead) || errors.Is(err, context.Canceled) {
			m.kill()
		}
		return err
	})
}

func (tr trial) rank(ctx context.Context, g *member, f func(ctx context.Context, r *one) error) error {
	o := tr.o
	o.FS = tr.fs(g.rank)
	if tr.each != nil {
		tr.each(g.rank, &o)
	}
	if o.tick == 0 {
		o.tick = time.Millisecond // there are many rounds while one rank still writes
	}
	var dir *checkpoint.Dir
	if g.rank == 0 {
		var err error
		if dir, err = checkpoint.Open(sharedPath, tr.dirOptions(o)); err != nil {
			return err
		}
	}
	r := &one{rank: g.rank, arrays: arraysOf(g.rank)}
	if tr.arrays != nil {
		r.arrays = tr.arrays(g.rank)
	}
	var err error
	if r.Saver, err = New(ctx, g, dir, r.arrays, o); err != nil {
		return err
	}
	err = f(ctx, r)
	return errors.Join(err, r.Close())
}

func (tr trial) dirOptions(o Options) checkpoint.Options {
	codec := tr.codec
	if codec == "" {
		codec = "none"
	}
	return checkpoint.Options{FS: o.FS, Codec: codec, Keep: tr.keep, Run: "trial", Attempt: tr.attempt, Fence: tr.fence,
		Log: o.Log, Workers: 1}
}

// arraysOf returns the arrays of a rank: two that all ranks hold, an empty one, and one of its own.
func arraysOf(rank int) []Array {
	shapes := []Array{
		{Name: "weight", DType: "float32", Shape: []int{5, 1000}, Replicated: true},
		{Name: "empty", DType: "float32", Shape: []int{0, 3}, Replicated: true},
		{Name: "bias", DType: "bfloat16", Shape: []int{333}, Replicated: true},
		{Name: fmt.Sprintf("own.%d", rank), DType: "uint8", Shape: []int{1000 + rank}},
	}
	shapes[0].Data, shapes[2].Data, shapes[3].Data = make([]byte, 20000), make([]byte, 666), make([]byte, 1000+rank)
	return shapes
}

// content returns the content of an array at a step: noise that mostly stays the same from step to step.
func content(name string, n int, step int64) []byte {
	rng := rand.New(rand.NewPCG(uint64(len(name)), uint64(name[0])+uint64(name[len(name)-1])<<8))
	data := make([]byte, 0, n+8)
	for i := 0; len(data) < n; i++ {
		word := rng.Uint64()
		if i%2 == 0 {
			word += uint64(step)
		}
		data = binary.LittleEndian.AppendUint64(data, word)
	}
	return data[:n]
}

// at sets the arrays to their content at a step.
func (r *one) at(step int64) {
	for _, a := range r.arrays {
		copy(a.Data, content(a.Name, len(a.Data), step))
	}
}

// save trains to a step, saves it and overwrites the arrays at once, even if the save goes on in the background.
func (r *one) save(ctx context.Context, step int64) error {
	r.at(step)
	err := r.Save(ctx, Meta{Step: step, Values: valuesOf(step)})
	for _, a := range r.arrays {
		clear(a.Data)
	}
	return err
}

// valuesOf returns the values of a step.
func valuesOf(step int64) map[string]json.RawMessage {
	return map[string]json.RawMessage{"of": json.RawMessage(fmt.Sprint(step))}
}

// check reads a whole checkpoint and compares it with what was saved.
func check(c *checkpoint.Checkpoint) error {
	for _, tensor := range c.Tensors() {
		data := make([]byte, tensor.Bytes)
		if err := c.Read(context.Background(), []checkpoint.Target{{Name: tensor.Name, Data: data}}); err != nil {
			return err
		}
		if !bytes.Equal(data, content(tensor.Name, len(data), c.Step())) {
			return fmt.Errorf("step %d: %s is not what was saved", c.Step(), tensor.Name)
		}
	}
	if string(c.Values()["of"]) != fmt.Sprint(c.Step()) {
		return fmt.Errorf("step %d: values %s", c.Step(), c.Values())
	}
	return nil
}

// latest verifies all of the newest checkpoint and returns its step. It returns -1 if the directory is empty.
func latest(fsys vfs.FS, attempt int) (step int64, err error) {
	d, err := checkpoint.Open(sharedPath, checkpoint.Options{FS: fsys, Run: "trial", Attempt: attempt, Workers: 1})
	if err != nil {
		return 0, err
	}
	c, err := d.FindLatest(context.Background())
	if errors.Is(err, checkpoint.ErrNone) {
		return -1, nil
	}
	if err != nil {
		return 0, err
	}
	defer c.Close()
	return c.Step(), check(c)
}

// resume resumes, verifies the checkpoint on every rank and returns its step. It returns -1 if the directory is empty.
func (r *one) resume(ctx context.Context) (int64, error) {
	c, err := r.Resume(ctx, check)
	if errors.Is(err, checkpoint.ErrNone) {
		return -1, nil
	}
	if err != nil {
		return 0, err
	}
	return c.Step(), c.Close()
}

// newDisk returns an empty shared file system, and a function that returns it for every rank.
func newDisk(t testing.TB) (*vfstest.Mem, func(int) vfs.FS) {
	t.Helper()
	m := vfstest.NewMem()
	for _, dir := range []string{"/shared", "/shared/run", localPath} {
		must(t, m.Mkdir(dir))
	}
	must(t, errors.Join(m.SyncDir("/"), m.SyncDir("/shared")))
	return m, func(int) vfs.FS { return m }
}

// tree lists the files and folders below a path.
func tree(fsys vfs.FS, dir string) []string {
	entries, err := fsys.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var files []string
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		files = append(files, path)
		if e.IsDir() {
			files = append(files, tree(fsys, path)...)
		}
	}
	return files
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mustAll(t testing.TB, errs []error) {
	t.Helper()
	must(t, errors.Join(errs...))
}

// wantAll wants an error of a class on every rank, with a text that contains names, usually the rank where the error occurred.
func wantAll(t testing.TB, errs []error, class error, names string) {
	t.Helper()
	for rank, err := range errs {
		if !errors.Is(err, class) || !strings.Contains(err.Error(), names) {
			t.Errorf("rank %d: error %v, want one that is %v and names %q", rank, err, class, names)
		}
	}
}

// gate blocks the callers of passes until it is opened.
type gate struct {
	once   sync.Once
	opened chan struct{}
}

func newGate() *gate    { return &gate{opened: make(chan struct{})} }
func (g *gate) open()   { g.once.Do(func() { close(g.opened) }) }
func (g *gate) passes() { <-g.opened }

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// errDead is the error that the members of a group get once one of them has died.
var errDead = errors.New("a rank has died")

// goroutineGroup is a Group of goroutines. Once a member dies, or its context ends inside a collective, all members get errors, as they do
// from an aborted communicator.
type goroutineGroup struct {
	up, down []chan []byte
	dead     chan struct{}
	die      sync.Once
	// fault, if not nil, is called before the k-th collective of a rank, counted from 1. If it returns an error, the rank dies.
	fault func(rank, k int) error
}

func newGoroutineGroup(size int) *goroutineGroup {
	m := &goroutineGroup{dead: make(chan struct{})}
	for range size {
		m.up, m.down = append(m.up, make(chan []byte)), append(m.down, make(chan []byte))
	}
	return m
}

// NewGoroutineGroup, Member and Die are for the hard tests, which are outside the package.
func NewGoroutineGroup(size int) *goroutineGroup { return newGoroutineGroup(size) }
func (m *goroutineGroup) Member(rank int) Group  { return m.member(rank) }
func (m *goroutineGroup) Die()                   { m.kill() }

func (m *goroutineGroup) kill() { m.die.Do(func() { close(m.dead) }) }

type member struct {
	*goroutineGroup
	rank  int
	calls int
}

var _ Group = (*member)(nil)

func (m *goroutineGroup) member(rank int) *member { return &member{goroutineGroup: m, rank: rank} }

func (m *member) Rank() int { return m.rank }
func (m *member) Size() int { return len(m.up) }

func (m *member) enter() error {
	m.calls++
	if m.fault == nil {
		return nil
	}
	err := m.fault(m.rank, m.calls)
	if err != nil {
		m.kill()
	}
	return err
}

func (m *member) send(ctx context.Context, to chan []byte, payload []byte) error {
	select {
	case to <- bytes.Clone(payload):
		return nil
	case <-m.dead:
		return errDead
	case <-ctx.Done():
		m.kill()
		return context.Cause(ctx)
	}
}

func (m *member) receive(ctx context.Context, from chan []byte) ([]byte, error) {
	select {
	case payload := <-from:
		return payload, nil
	case <-m.dead:
		return nil, errDead
	case <-ctx.Done():
		m.kill()
		return nil, context.Cause(ctx)
	}
}

func (m *member) Gather(ctx context.Context, payload []byte) ([][]byte, error) {
	if err := m.enter(); err != nil {
		return nil, err
	}
	if m.rank != 0 {
		return nil, m.send(ctx, m.up[m.rank], payload)
	}
	all := [][]byte{bytes.Clone(payload)}
	for _, from := range m.up[1:] {
		got, err := m.receive(ctx, from)
		if err != nil {
			return nil, err
		}
		all = append(all, got)
	}
	return all, nil
}

func (m *member) Broadcast(ctx context.Context, payload []byte) ([]byte, error) {
	if err := m.enter(); err != nil {
		return nil, err
	}
	if m.rank != 0 {
		return m.receive(ctx, m.down[m.rank])
	}
	for _, to := range m.down[1:] {
		if err := m.send(ctx, to, payload); err != nil {
			return nil, err
		}
	}
	return bytes.Clone(payload), nil
}
