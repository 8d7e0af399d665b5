package collbench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"ddpbatch/internal/auth"
	"ddpbatch/mpi"
	"ddpbatch/mpi/store"
)

// maxStoreValue is the size of the largest value in rows of the store, in bytes.
const maxStoreValue = 64 << 10

// store times operations on a TCP store that rank 0 serves, by all ranks at once, each over a connection and on keys
// of its own.
func (b *bench) store(ctx context.Context, _ time.Duration) (err error) {
	secret, err := b.storeSecret()
	if err != nil {
		return err
	}
	addr, stop, err := b.serveStore(ctx, secret)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	client, err := store.Dial(ctx, addr, store.DialConfig{
		Secret: secret, Binding: storeBinding, Name: fmt.Sprintf("rank %d", b.rank), Log: b.p.Log,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	own := fmt.Sprintf("bench/%d", b.rank)
	for size := b.o.Begin; size <= min(b.o.End, maxStoreValue); size *= b.o.Factor {
		for _, op := range []string{"set", "get"} {
			row := result{Size: size, Count: size, Type: "bytes", Redop: op}
			if err := b.time(ctx, row, valueCall(ctx, client, own, op, int(size))); err != nil {
				return err
			}
		}
	}
	if err := b.time(ctx, result{Size: 8, Count: 1, Type: "int64", Redop: "add"}, addCall(client, own+"/sum")); err != nil {
		return err
	}
	return b.comm.Barrier(ctx) // the store must not end before every rank's last call
}

var storeBinding = auth.Binding{Run: "bench", Attempt: 1, Role: "store"}

// storeSecret returns a secret for only this store, made from the run's.
func (b *bench) storeSecret() (auth.Secret, error) {
	if b.ranks == 1 {
		return auth.NewSecret(), nil
	}
	secret, err := b.p.Secret()
	if err != nil {
		return secret, err
	}
	return secret.Derive("bench", "store"), nil
}

// serveStore serves the store on rank 0, at MASTER_ADDR, and returns its address on all ranks.
func (b *bench) serveStore(ctx context.Context, secret auth.Secret) (addr string, stop func() error, err error) {
	host := b.p.MasterAddr
	if b.ranks == 1 || host == "" {
		host = "127.0.0.1"
	}
	port := []int64{0}
	stop = func() error { return nil }
	if b.rank == 0 {
		at := ""
		if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() {
			at = host
		}
		var lc net.ListenConfig
		l, err := lc.Listen(ctx, "tcp", net.JoinHostPort(at, "0"))
		if err != nil {
			return "", stop, fmt.Errorf("serve a store: %w", err)
		}
		server := store.Serve(l, store.ServerConfig{Secret: secret, Binding: storeBinding, Log: b.p.Log})
		stop, port[0] = server.Close, int64(l.Addr().(*net.TCPAddr).Port)
	}
	if err := mpi.Broadcast(ctx, b.comm, port, 0); err != nil {
		return "", stop, errors.Join(err, stop())
	}
	return net.JoinHostPort(host, fmt.Sprint(port[0])), stop, nil
}

// valueCall returns a call that sets, or gets, a value of size bytes.
func valueCall(ctx context.Context, s store.Store, key, op string, size int) timedCall {
	key = fmt.Sprintf("%s/%d", key, size)
	value := make([]byte, size)
	var got []byte
	call := timedCall{
		fill: func(iteration int) { spread(value, bytePattern(iteration)) },
		run:  func(ctx context.Context) error { return s.Set(ctx, key, value) },
	}
	if op == "get" {
		set := call
		call.fill = func(iteration int) {
			set.fill(iteration)
			got = nil
			_ = set.run(ctx) // the check finds the result of a failure
		}
		call.run = func(ctx context.Context) (err error) {
			got, err = s.Get(ctx, key)
			return err
		}
	}
	call.wrong = func(iteration int) int64 {
		if op == "set" {
			got, _ = s.Get(ctx, key) // after an error all bytes count as wrong
		}
		return int64(size-len(got)) + countWrong(got, bytePattern(iteration), 0)
	}
	return call
}

func bytePattern(iteration int) []byte {
	return converted(formula{ranks: 1}.pattern(0, iteration), func(x int64) byte { return byte(x) })
}

// addCall returns a call that adds 1 to a number.
func addCall(s store.Store, key string) timedCall {
	var sum, calls int64
	return timedCall{
		fill: func(int) {},
		run: func(ctx context.Context) (err error) {
			calls++
			sum, err = s.Add(ctx, key, 1)
			return err
		},
		wrong: func(int) int64 {
			if sum != calls {
				return 1
			}
			return 0
		},
	}
}
