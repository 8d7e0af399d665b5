package transport

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"ddpbatch/internal/auth"
)

// patience is how long a test waits for what should happen at once.
const patience = 20 * time.Second

var testSecret = auth.Secret{1, 2, 3}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// board is a Directory in memory.
type board struct {
	mu      sync.Mutex
	values  map[string][]byte
	changed chan struct{}
}

func newBoard() *board { return &board{values: map[string][]byte{}, changed: make(chan struct{})} }

func (b *board) Set(_ context.Context, key string, value []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.values[key] = value
	close(b.changed)
	b.changed = make(chan struct{})
	return nil
}

func (b *board) Get(ctx context.Context, key string) ([]byte, error) {
	for {
		b.mu.Lock()
		value, ok := b.values[key]
		changed := b.changed
		b.mu.Unlock()
		if ok {
			return value, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func testConfig(dir Directory, rank, size int) Config {
	return Config{
		Rank: rank, Size: size, Listen: "127.0.0.1", Directory: dir, Secret: testSecret,
		Run: "test", Attempt: 1, Timeout: patience,
	}
}

// newMeshes connects size ranks; change, if not nil, adjusts the configuration of each.
func newMeshes(t *testing.T, size int, change func(*Config)) []*TCP {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	dir := newBoard()
	meshes := make([]*TCP, size)
	errs := each(size, func(rank int) (err error) {
		cfg := testConfig(dir, rank, size)
		if change != nil {
			change(&cfg)
		}
		meshes[rank], err = ConnectTCP(ctx, cfg)
		return err
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, m := range meshes {
			m.Close()
		}
	})
	return meshes
}

// each runs f as every rank at once, and returns their errors by rank.
func each(size int, f func(rank int) error) []error {
	errs := make([]error, size)
	var tasks sync.WaitGroup
	for rank := range size {
		tasks.Go(func() { errs[rank] = f(rank) })
	}
	tasks.Wait()
	return errs
}

// eventually waits until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("did not happen within %v: %s", patience, what)
		}
		time.Sleep(time.Millisecond)
	}
}

// quick fails the test if f takes a second or more.
func quick(t *testing.T, f func()) {
	t.Helper()
	begin := time.Now()
	f()
	if took := time.Since(begin); took > time.Second {
		t.Errorf("took %v", took)
	}
}

// journal is a log that tests read.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.String()
}

func (j *journal) logger() *slog.Logger { return slog.New(slog.NewTextHandler(j, nil)) }
