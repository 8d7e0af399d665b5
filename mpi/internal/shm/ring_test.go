package shm

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"runtime"
	"testing"

	"ddpbatch/internal/testkit"

	"pgregory.net/rapid"
)

// ringPair returns both sides of a ring in one mapping, so that the race detector sees both.
func ringPair(t testing.TB, capacity int) (writer, reader *Ring, mem []byte) {
	t.Helper()
	mem = create(t, RingOverhead+capacity).Bytes()
	return NewRing(mem), NewRing(mem), mem
}

func TestRingBehavesLikeAQueue(t *testing.T) {
	const capacity = 64
	mem := create(t, RingOverhead+capacity).Bytes()
	rapid.Check(t, func(t *rapid.T) {
		clear(mem)
		writer, reader := NewRing(mem), NewRing(mem)
		var queue []byte
		next := byte(0)
		fresh := func(n int) []byte {
			b := make([]byte, n)
			for i := range b {
				b[i] = next + byte(i)
			}
			return b
		}
		t.Repeat(map[string]func(*rapid.T){
			"write": func(t *rapid.T) {
				both := fresh(rapid.IntRange(0, 2*capacity).Draw(t, "bytes"))
				cut := rapid.IntRange(0, len(both)).Draw(t, "head")
				n, err := writer.Write(both[:cut], both[cut:])
				if want := min(len(both), capacity-len(queue)); n != want || err != nil {
					t.Fatalf("wrote %d, %v, want %d", n, err, want)
				}
				queue = append(queue, both[:n]...)
				next += byte(n)
			},
			"read": func(t *rapid.T) {
				buf := make([]byte, rapid.IntRange(0, 2*capacity).Draw(t, "bytes"))
				n, err := reader.Read(buf)
				if want := min(len(buf), len(queue)); n != want || err != nil {
					t.Fatalf("read %d, %v, want %d", n, err, want)
				}
				if !bytes.Equal(buf[:n], queue[:n]) {
					t.Fatalf("read %v, want %v", buf[:n], queue[:n])
				}
				queue = queue[n:]
			},
			"": func(t *rapid.T) {
				if got := readable(reader); got != (len(queue) > 0) {
					t.Fatalf("readable: %v with %d bytes", got, len(queue))
				}
				if got := writable(writer); got != (len(queue) < capacity) {
					t.Fatalf("writable: %v with %d bytes", got, len(queue))
				}
			},
		})
	})
}

func TestRingPassesBytesConcurrently(t *testing.T) {
	writer, reader, _ := ringPair(t, 64<<10)
	const total = 4 << 20
	random := rand.NewChaCha8([32]byte{1})
	sent := make([]byte, total)
	random.Read(sent)
	received := make([]byte, total)
	errs := testkit.Each(2, func(side int) error {
		for done := 0; done < total; {
			var n int
			var err error
			if side == 0 {
				piece := sent[done:min(done+100_000, total)]
				n, err = writer.Write(piece[:len(piece)/3], piece[len(piece)/3:])
			} else {
				n, err = reader.Read(received[done:min(done+90_000, total)])
			}
			if err != nil {
				return err
			}
			if done += n; n == 0 {
				runtime.Gosched()
			}
		}
		return nil
	})
	if err := errors.Join(errs...); err != nil || !bytes.Equal(sent, received) {
		t.Errorf("%v, and what arrived is what was sent: %v", err, bytes.Equal(sent, received))
	}
}

// Whatever the other side writes, a ring touches nothing outside itself, and an index that moves back or too far is an error.
func FuzzRingHostile(f *testing.F) {
	f.Add(uint64(10), uint64(1)<<63)
	f.Add(uint64(65), uint64(0))
	f.Add(uint64(5), uint64(4))
	f.Add(^uint64(0), uint64(0))
	f.Fuzz(func(t *testing.T, first, second uint64) {
		const capacity = 64
		_, reader, _ := ringPair(t, capacity)
		buf := make([]byte, 2*capacity)
		last := uint64(0)
		for _, index := range []uint64{first, second} {
			reader.shared.written.Store(index)
			want := index >= last && index-last <= capacity // everything up to last has been read
			n, err := reader.Read(buf)
			if (err == nil) != want || want && n != int(index-last) || !want && !errors.Is(err, ErrCorrupt) {
				t.Fatalf("written %d after %d: read %d, %v", index, last, n, err)
			}
			if !want {
				if !readable(reader) {
					t.Error("an error was not announced")
				}
				break
			}
			last = index
		}
		writer, _, _ := ringPair(t, capacity)
		if n, err := writer.Write(buf, nil); n != capacity || err != nil {
			t.Fatalf("wrote %d, %v", n, err)
		}
		writer.shared.read.Store(first)
		n, err := writer.Write(buf, nil)
		if (err == nil) != (first <= capacity) || n > capacity {
			t.Errorf("read %d of %d: wrote %d, %v", first, capacity, n, err)
		}
		if !writable(writer) && first > capacity {
			t.Error("an error was not announced")
		}
	})
}

func TestNewRingNeedsRoom(t *testing.T) {
	mem := create(t, 1024).Bytes()
	for what, mem := range map[string][]byte{"none": nil, "no_data": mem[:RingOverhead], "off_the_line": mem[8:]} {
		t.Run(what, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			NewRing(mem)
		})
	}
}

// BenchmarkRing measures a round trip, which is two hops.
func BenchmarkRing(b *testing.B) {
	benchmarkWorkload(b, "ping_pong", 2, false, 4, 1<<10, 16<<10, 64<<10, 1<<20, 16<<20)
}
