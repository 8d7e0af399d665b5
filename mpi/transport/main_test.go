package transport

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/testkit"
	"ddpbatch/internal/testkit/ucxhost"
	"ddpbatch/mpi/store"
	"ddpbatch/mpi/transport/ucx"
)

var testSecret = auth.Secret{1, 2, 3}

func TestMain(m *testing.M) {
	if words := os.Getenv(flowVariable); words != "" {
		if err := flowProcess(words); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	ucxhost.SetUp()
	goleak.VerifyTestMain(m)
}

func testConfig(dir Directory, rank, size int) Config {
	return Config{
		Rank: rank, Size: size, Listen: "127.0.0.1", Directory: dir, Secret: testSecret,
		Run: "test", Attempt: 1, UCX: UCXNever,
	}
}

// connectRanks connects size ranks. change, if not nil, adjusts the configuration of each.
func connectRanks(t testing.TB, size int, change func(*Config)) []*Sockets {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	dir := store.NewMemory()
	fabrics := make([]*Sockets, size)
	errs := testkit.Each(size, func(rank int) (err error) {
		cfg := testConfig(dir, rank, size)
		if change != nil {
			change(&cfg)
		}
		fabrics[rank], err = Connect(ctx, cfg)
		return err
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		testkit.Each(size, func(rank int) error { return fabrics[rank].Close() }) // at once, as ranks do
	})
	return fabrics
}

// share returns a change for connectRanks.
func share(sharing Sharing) func(*Config) { return func(c *Config) { c.Sharing = sharing } }

// kinds are this package's ways to join ranks.
var kinds = map[string]func(t testing.TB, size int) []Fabric{
	"in_process": func(t testing.TB, size int) []Fabric {
		_, fabrics := newNetwork(t, size)
		for _, f := range fabrics {
			t.Cleanup(func() { f.Close() })
		}
		return fabrics
	},
	"tcp": func(t testing.TB, size int) []Fabric { return asFabrics(connectRanks(t, size, share(ShareNever))) },
	"streams": func(t testing.TB, size int) []Fabric {
		return asFabrics(connectRanks(t, size, func(c *Config) { c.Sharing, c.Streams = ShareNever, 3 }))
	},
	"encrypted": func(t testing.TB, size int) []Fabric {
		return asFabrics(connectRanks(t, size, func(c *Config) { c.Sharing, c.Encrypt, c.Streams = ShareNever, true, 2 }))
	},
	"ucx": func(t testing.TB, size int) []Fabric {
		_, _, err := ucx.Library()
		ucxhost.Need(t, err)
		sockets := connectRanks(t, size, func(c *Config) { c.Sharing, c.UCX = ShareNever, UCXAlways })
		return asFabrics(sockets)
	},
	"shared": func(t testing.TB, size int) []Fabric { return asFabrics(connectRanks(t, size, share(ShareAlways))) },
}

// letWork keeps UCX working until the test ends, if data goes by UCX. It is for tests that read and write, and neither call Ready nor
// sleep.
func letWork(t testing.TB, fabrics []Fabric) {
	for _, f := range fabrics {
		s, ok := f.(*Sockets)
		if !ok || !s.UsesUCX() {
			continue
		}
		done, ended := make(chan struct{}), make(chan struct{})
		go func() {
			s.rdma.worker.ProgressUntil(done)
			close(ended)
		}()
		t.Cleanup(func() {
			close(done)
			<-ended
		})
	}
}

func asFabrics(sockets []*Sockets) []Fabric {
	fabrics := make([]Fabric, len(sockets))
	for i, s := range sockets {
		fabrics[i] = s
	}
	return fabrics
}

// forEachKind runs a test on every kind of fabric.
func forEachKind(t *testing.T, f func(t *testing.T, join func(t testing.TB, size int) []Fabric)) {
	for name, join := range kinds {
		t.Run(name, func(t *testing.T) { f(t, join) })
	}
}

// openFiles counts this process's descriptors.
func openFiles(t testing.TB) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}
