package transport

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/store"
)

// welcomeAt is the number of bytes that the accepting rank sends before its answer: those of package auth's handshake.
const welcomeAt = len("ddpbatch") + 2 + 32 + 2 + helloSize + 1 + 32

// resettingProxy is a Directory that directs connections for rank 0 to a proxy, which resets some of them.
type resettingProxy struct {
	store.Store
	via              net.Listener
	serial           atomic.Int64
	reset            func(serial int64) bool // reports whether to reset a connection, by its number from 0
	loseConfirmation bool                    // reset after, and not before, the dialing rank has received its welcome
	tasks            sync.WaitGroup
}

func (d *resettingProxy) Get(ctx context.Context, key string) ([]byte, error) {
	value, err := d.Store.Get(ctx, key)
	if err != nil || key != addressKey(0) {
		return value, err
	}
	_, machine, ticket, err := decodeAddressRecord(value)
	return addressRecord{d.via.Addr().String(), machine, ticket}.encode(), err
}

func (d *resettingProxy) serve() {
	for {
		conn, err := d.via.Accept()
		if err != nil {
			return
		}
		serial := d.serial.Add(1) - 1
		d.tasks.Go(func() { d.pass(conn.(*net.TCPConn), d.reset(serial)) })
	}
}

// plainWriter keeps io.Copy from using splice(2), whose pipes stay open for a while.
type plainWriter struct{ io.Writer }

// pass copies both ways until either side ends. If reset is set, it stops when the answer has arrived.
func (d *resettingProxy) pass(near *net.TCPConn, reset bool) {
	value, _ := d.Store.Get(context.Background(), addressKey(0))
	addr, _, _, _ := decodeAddressRecord(value)
	conn, err := net.Dial("tcp", addr.String())
	if err != nil {
		near.Close()
		return
	}
	far := conn.(*net.TCPConn)
	end := sync.OnceFunc(func() {
		if reset {
			near.SetLinger(0)
			far.SetLinger(0)
		}
		near.Close()
		far.Close()
	})
	defer end()
	d.tasks.Go(func() {
		defer end()
		if reset && d.loseConfirmation {
			io.CopyN(plainWriter{far}, near, int64(len("ddpbatch")+2+32+2+helloSize+32)) // without the confirmation
			near.Read(make([]byte, 1))
			return
		}
		io.Copy(plainWriter{far}, near)
	})
	if !reset {
		io.Copy(plainWriter{near}, far)
		return
	}
	io.CopyN(plainWriter{near}, far, int64(welcomeAt))
	var answer [recordHead + 1 + recordTag]byte
	io.ReadFull(far, answer[:])
	if d.loseConfirmation {
		near.Write(answer[:])
		io.Copy(io.Discard, near) // until the other direction ends
	}
}

// A start does not fail if a connection is reset just when its rank has been admitted: the rank connects again, and is admitted again.
func TestResetAfterWelcomeIsTriedAgain(t *testing.T) {
	only := func(serials ...int64) func(int64) bool {
		return func(serial int64) bool { return slices.Contains(serials, serial) }
	}
	for _, tt := range []struct {
		name  string
		reset func(int64) bool
		deaf  bool
		share Sharing
	}{
		{"control", only(0), false, ShareNever},
		{"control_twice", only(0, 1), false, ShareNever},
		{"one_stream", only(1), false, ShareNever},
		{"last_stream", only(3), false, ShareNever},
		{"all_streams", only(1, 2, 3), false, ShareNever},
		{"confirmation_of_control", only(0), true, ShareNever},
		{"control_of_shared_memory", only(0), false, ShareAlways},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
			defer cancel()
			before := openFiles(t)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			d := &resettingProxy{Store: store.NewMemory(), via: l, reset: tt.reset, loseConfirmation: tt.deaf}
			d.tasks.Go(d.serve)
			fabrics := make([]*Sockets, 2)
			errs := testkit.Each(2, func(rank int) (err error) {
				cfg := testConfig(d, rank, 2)
				cfg.Sharing, cfg.Streams = tt.share, 3
				fabrics[rank], err = Connect(ctx, cfg)
				return err
			})
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
			for name, l := range links(fabrics[1], 0) {
				sent, got := make([]byte, 2*cellBytes+1), make([]byte, 2*cellBytes+1) // enough for all three streams
				wrote, read := 0, 0
				testkit.Eventually(t, "bytes pass on "+name, func() bool {
					n, err := l.Write(nil, sent[wrote:])
					wrote += n
					k, err2 := links(fabrics[0], 1)[name].Read(got[read:])
					read += k
					if err != nil || err2 != nil {
						t.Fatal(err, err2)
					}
					return read == len(sent)
				})
			}
			for _, f := range fabrics {
				f.Close()
			}
			l.Close()
			d.tasks.Wait()
			testkit.Eventually(t, "all descriptors are given back", func() bool { return openFiles(t) <= before })
		})
	}
}
