package transport

import (
	"context"
	"errors"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/testkit"
)

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
		Run: "test", Attempt: 1, Timeout: testkit.Patience,
	}
}

// newMeshes connects size ranks; change, if not nil, adjusts the configuration of each.
func newMeshes(t *testing.T, size int, change func(*Config)) []*TCP {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	dir := newBoard()
	meshes := make([]*TCP, size)
	errs := testkit.Each(size, func(rank int) (err error) {
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
