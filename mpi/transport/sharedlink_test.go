package transport

import (
	"context"
	"errors"
	"math"
	"os"
	"strings"
	"testing"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/internal/shm"
	"ddpbatch/mpi/store"
)

// A pair shares memory if both ranks allow it, whether or not one of them requires it.
func TestPairsShareMemoryWhereBothMay(t *testing.T) {
	for _, tt := range []struct {
		name   string
		shared bool
		ranks  [2]Sharing
	}{
		{"both_where_it_works", true, [2]Sharing{ShareWhereItWorks, ShareWhereItWorks}},
		{"both_always", true, [2]Sharing{ShareAlways, ShareAlways}},
		{"lower_always", true, [2]Sharing{ShareAlways, ShareWhereItWorks}},
		{"higher_always", true, [2]Sharing{ShareWhereItWorks, ShareAlways}},
		{"both_never", false, [2]Sharing{ShareNever, ShareNever}},
		{"lower_never", false, [2]Sharing{ShareNever, ShareWhereItWorks}},
		{"higher_never", false, [2]Sharing{ShareWhereItWorks, ShareNever}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fabrics := connectRanks(t, 2, func(c *Config) { c.Sharing = tt.ranks[c.Rank] })
			for rank, f := range fabrics {
				if shared := len(f.Shared()) > 0; shared != tt.shared || shared != isShared(f.Data(1-rank)) {
					t.Errorf("rank %d shares memory with %v", rank, f.Shared())
				}
				if m := f.WaitPolicy(); m.OnDemand || m.Spin <= 0 {
					t.Errorf("rank %d is to wait like %+v", rank, m)
				}
			}
		})
	}
}

func isShared(l Link) bool {
	_, ok := l.(*sharedLink)
	return ok
}

// If one rank must share memory and the other does not, the pair fails at once, and leaves no descriptors open.
func TestSharingThatCannotBeFailsAtOnce(t *testing.T) {
	for name, ranks := range map[string][2]Sharing{
		"lower_always":  {ShareAlways, ShareNever},
		"higher_always": {ShareNever, ShareAlways},
	} {
		t.Run(name, func(t *testing.T) {
			before := openFiles(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			dir := store.NewMemory()
			errs := make([]chan error, 2)
			for rank := range errs {
				errs[rank] = make(chan error, 1)
				go func() {
					cfg := testConfig(dir, rank, 2)
					cfg.Sharing = ranks[rank]
					f, err := Connect(ctx, cfg)
					if err == nil {
						f.Close()
					}
					errs[rank] <- err
				}()
			}
			var err error
			testkit.Within(t, testkit.Patience, func() { err = <-errs[1] }) // rank 1 has dialed, and is refused
			if !errors.Is(err, errNoSharing) {
				t.Errorf("rank 1 got %v", err)
			}
			cancel()
			if err := <-errs[0]; ranks[0] == ShareAlways && !errors.Is(err, context.Canceled) {
				t.Errorf("rank 0 got %v", err)
			}
			testkit.Eventually(t, "all descriptors are given back", func() bool { return openFiles(t) <= before })
		})
	}
}

// Invalid offers of memory and of a wake pipe are detected, and the pair then uses TCP.
func TestHostileMemoryOffersAreRefused(t *testing.T) {
	p, err := newPairMemory()
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	b, err := newWakePipe()
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	small, err := shm.Create(100)
	if err != nil {
		t.Fatal(err)
	}
	defer small.Close()
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	good := hello{
		rank: 1, size: 2, local: 1, streams: 1, try: 1, pid: uint32(os.Getpid()), pipe: uint32(b.write),
		memory: p.segment.Handle().Encode(),
	}
	handle := func(change func(*shm.Handle)) func(*hello) {
		return func(h *hello) {
			handle := p.segment.Handle()
			change(&handle)
			h.memory = handle.Encode()
		}
	}
	for _, tt := range []struct {
		name   string
		change func(*hello)
		want   answer
	}{
		{"good", func(*hello) {}, answerSharing},
		{"no_memory", func(h *hello) { clear(h.memory[:]) }, answerWelcome},
		{"rubbish", func(h *hello) { h.memory = [shm.HandleSize]byte{0xff, 0xff, 0xff, 0xff, 0xff} }, answerWelcome},
		{"other_size", func(h *hello) { h.memory = small.Handle().Encode() }, answerWelcome},
		{"size_of_another", handle(func(h *shm.Handle) { h.Size = 100 }), answerWelcome},
		{"size_that_is_not_its_own", func(h *hello) {
			handle := small.Handle()
			handle.Size = pairMemorySize
			h.memory = handle.Encode()
		}, answerWelcome},
		{"wrong_token", handle(func(h *shm.Handle) { h.Token[3]++ }), answerWelcome},
		{"no_such_process", handle(func(h *shm.Handle) { h.PID = math.MaxInt32 }), answerWelcome},
		{"process_1", handle(func(h *shm.Handle) { h.PID = 1 }), answerWelcome},
		{"no_such_file", handle(func(h *shm.Handle) { h.FD = 1 << 20 }), answerWelcome},
		{"a_file", handle(func(h *shm.Handle) { h.FD = int(file.Fd()) }), answerWelcome},
		{"bell_nowhere", func(h *hello) { h.pipe = math.MaxUint32 }, answerWelcome},
		{"bell_of_nobody", func(h *hello) { h.pid = math.MaxUint32 }, answerWelcome},
		{"bell_of_0", func(h *hello) { h.pid = 0 }, answerWelcome},
		{"bell_is_a_file", func(h *hello) { h.pipe = uint32(file.Fd()) }, answerWelcome},
		{"bell_is_memory", func(h *hello) { h.pipe = uint32(p.segment.Handle().FD) }, answerWelcome},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := openFiles(t)
			ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
			defer cancel()
			dir := store.NewMemory()
			done := make(chan error, 1)
			var f *Sockets
			go func() {
				var err error
				f, err = Connect(ctx, testConfig(dir, 0, 2))
				done <- err
			}()
			h := good
			tt.change(&h)
			got, conn := dialAs(ctx, t, dir, 0, h)
			if got != tt.want {
				t.Errorf("answer %d, want %d", got, tt.want)
			}
			stream := conn
			if got == answerSharing {
				confirm(t, conn, useMemory)
			} else {
				confirm(t, conn, useNoMemory)
				h.stream = 1
				stream = joinAs(ctx, t, dir, 0, h)
			}
			testkit.Within(t, testkit.Patience, func() { err = <-done })
			if err != nil {
				t.Fatal(err)
			}
			if shared := len(f.Shared()) == 1; shared != (tt.want == answerSharing) {
				t.Errorf("shares memory: %v", shared)
			}
			f.Close()
			conn.Close()
			stream.Close()
			testkit.Eventually(t, "all descriptors are given back", func() bool { return openFiles(t) <= before })
		})
	}
}

// A rank that offers memory and then withdraws the offer, sends rubbish or hangs up leaves nothing open.
func TestWithdrawnMemoryOfferCostsNothing(t *testing.T) {
	for name, finish := range map[string]func(conn *sealedConn, stream func()){
		"no":      func(conn *sealedConn, stream func()) { conn.keys.sendByte(conn, useNoMemory); stream() },
		"rubbish": func(conn *sealedConn, _ func()) { conn.keys.sendByte(conn, 2) },
		"hang_up": func(conn *sealedConn, _ func()) { conn.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			before := openFiles(t)
			p, err := newPairMemory()
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
			defer cancel()
			dir := store.NewMemory()
			done := make(chan error, 1)
			var log testkit.Journal
			cfg := testConfig(dir, 0, 2)
			cfg.Log = log.Logger()
			go func() {
				f, err := Connect(ctx, cfg)
				if err == nil {
					if len(f.Shared()) != 0 {
						t.Error("it shares memory")
					}
					f.Close()
				}
				done <- err
			}()
			b, err := newWakePipe()
			if err != nil {
				t.Fatal(err)
			}
			h := hello{
				rank: 1, size: 2, local: 1, streams: 1, try: 1, pid: uint32(os.Getpid()), pipe: uint32(b.write),
				memory: p.segment.Handle().Encode(),
			}
			got, conn := dialAs(ctx, t, dir, 0, h)
			if got != answerSharing {
				t.Fatalf("answer %d", got)
			}
			stream := conn
			finish(conn, func() {
				h.stream = 1
				stream = joinAs(ctx, t, dir, 0, h)
			})
			if name != "no" {
				testkit.Eventually(t, "it is noticed",
					func() bool { return strings.Contains(log.String(), "transport: connection refused") })
				cancel()
			}
			if err := <-done; (name == "no") != (err == nil) {
				t.Errorf("got %v", err)
			}
			conn.Close()
			stream.Close()
			b.close()
			p.close()
			testkit.Eventually(t, "all descriptors are given back", func() bool { return openFiles(t) <= before })
		})
	}
}

// If a process overwrites the memory that it shares, the other rank gets an error, and neither crashes nor hangs.
func TestScribbledMemoryIsAnError(t *testing.T) {
	for _, fill := range []byte{0xff, 0x7f, 0x01} {
		fabrics := connectRanks(t, 2, share(ShareAlways))
		l := fabrics[0].shared[1]
		mem := fabrics[1].shared[0].memory.segment.Bytes()
		for i := range mem {
			mem[i] = fill
		}
		if n, err := l.Read(make([]byte, 1000)); !errors.Is(err, shm.ErrCorrupt) {
			t.Errorf("%x: read %d bytes, %v", fill, n, err)
		}
		if n, err := l.Write(make([]byte, ringBytes+1), nil); !errors.Is(err, shm.ErrCorrupt) {
			t.Errorf("%x: wrote %d bytes, %v", fill, n, err)
		}
		fabrics[0].WakeRank(1)
		fabrics[0].Arm()
		fabrics[0].Disarm()
	}
}

// The memory and the wake pipe of a rank that has gone can still be used without harm.
func TestMemoryOfALostRankDoesNoHarm(t *testing.T) {
	fabrics := connectRanks(t, 2, share(ShareAlways))
	write(t, fabrics[1].Data(0), "last words")
	fabrics[1].Arm()
	fabrics[1].Close()
	fabrics[0].WakeRank(1) // nobody reads the pipe
	write(t, fabrics[0].Data(1), "too late")
	if got := readN(t, fabrics[0].Data(1), 10); string(got) != "last words" {
		t.Errorf("read %q", got)
	}
}
