package transport

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
)

// asleep runs Sleep, and tells by the channel that it has returned.
func asleep(f Fabric) chan struct{} {
	done := make(chan struct{})
	go func() {
		f.Sleep()
		close(done)
	}()
	return done
}

func wantAwake(t testing.TB, done chan struct{}) {
	t.Helper()
	testkit.Within(t, testkit.Moment, func() { <-done })
}

// calm empties what there is to be told of, so that the next Sleep sleeps.
func calm(t testing.TB, f Fabric) {
	t.Helper()
	f.Ready(nil)
	f.Wake()
	f.Sleep()
	f.Ready(nil)
}

// Ready tells once of each rank with news, and of those that have ended.
func TestReady(t *testing.T) {
	overAll(t, func(t *testing.T, join func(testing.TB, int) []Fabric) {
		fabrics := join(t, 4)
		f := fabrics[0]
		calm(t, f)
		if ranks := f.Ready(nil); len(ranks) != 0 {
			t.Errorf("news of %v before anybody said anything", ranks)
		}
		fabrics[2].Control(0).Write([]byte("x"), nil)
		fabrics[3].Control(0).Write([]byte("x"), nil)
		f.Sleep()
		var told []int
		testkit.Eventually(t, "both are told of", func() bool { told = f.Ready(told); return len(told) >= 2 })
		slices.Sort(told)
		if !slices.Equal(told, []int{2, 3}) {
			t.Errorf("news of %v, want that of 2 and 3", told)
		}
		if again := f.Ready(nil); len(again) != 0 {
			t.Errorf("news of %v twice", again)
		}
		drain(t, f.Control(2), 1)
		fabrics[2].Close()
		testkit.Eventually(t, "the end is told of", func() bool { return slices.Contains(f.Ready(nil), 2) })
	})
}

// Room on a link that had none is news, too.
func TestReadyToWrite(t *testing.T) {
	fabrics := kinds["tcp"](t, 2)
	l, sent := fabrics[0].Control(1), 0
	testkit.Eventually(t, "the link is full", func() bool {
		n, _ := l.Write(nil, make([]byte, 1<<20))
		sent += n
		return n == 0
	})
	calm(t, fabrics[0])
	done := asleep(fabrics[0])
	drain(t, fabrics[1].Control(0), sent)
	wantAwake(t, done)
	if ranks := fabrics[0].Ready(nil); !slices.Contains(ranks, 1) {
		t.Errorf("news of %v, want that of 1", ranks)
	}
}

func TestWake(t *testing.T) {
	overAll(t, func(t *testing.T, join func(testing.TB, int) []Fabric) {
		f := join(t, 2)[0]
		calm(t, f)
		done := asleep(f)
		f.Wake()
		wantAwake(t, done)
		calm(t, f)
		for range 100_000 { // more than a pipe holds
			f.Wake()
		}
		wantAwake(t, asleep(f)) // a Wake before the Sleep counts
	})
}

// Shared memory wakes only those that are armed: by what is put there, by room, and by a nudge.
func TestArm(t *testing.T) {
	for name, news := range map[string]func(other Fabric){
		"bytes": func(other Fabric) { other.Data(0).Write([]byte("x"), nil) },
		"nudge": func(other Fabric) { other.Nudge(0) },
	} {
		t.Run(name, func(t *testing.T) {
			fabrics := kinds["shared"](t, 2)
			f := fabrics[0].(*Sockets)
			calm(t, f)
			f.Arm()
			done := asleep(f)
			news(fabrics[1])
			wantAwake(t, done)
			f.Arm()
			news(fabrics[1]) // between Arm and Sleep
			wantAwake(t, asleep(f))
			f.Arm()
			f.Disarm()
			news(fabrics[1])
			done = asleep(f)
			select {
			case <-done:
				t.Error("it was woken and is not armed")
			case <-time.After(20 * time.Millisecond):
			}
			f.Wake()
			wantAwake(t, done)
		})
	}
}

func TestArmForRoom(t *testing.T) {
	fabrics := kinds["shared"](t, 2)
	f, sent := fabrics[0], 0
	for {
		n, err := f.Data(1).Write(nil, make([]byte, 100_000))
		if err != nil {
			t.Fatal(err)
		}
		if sent += n; n == 0 {
			break
		}
	}
	if sent != ringBytes {
		t.Errorf("it took %d bytes, not %d", sent, ringBytes)
	}
	calm(t, f)
	f.Arm()
	done := asleep(f)
	drain(t, fabrics[1].Data(0), 1)
	wantAwake(t, done)
}

// Whoever polls while another goroutine sleeps does not take the ring from it: who rang has disarmed the rank, and will not
// ring again.
func TestRingIsTheSleepers(t *testing.T) {
	fabrics := kinds["shared"](t, 2)
	f := fabrics[0]
	calm(t, f)
	for range 200 {
		f.Arm()
		done := make(chan struct{})
		go func() { f.Sleep(); close(done) }()
		runtime.Gosched()
		fabrics[1].Nudge(0)
		f.Ready(nil)
		wantAwake(t, done)
	}
}

// Two ranks pass bytes to each other, and sleep between, for times around those that it takes to be woken.
func TestNoLostRing(t *testing.T) {
	overAll(t, func(t *testing.T, join func(testing.TB, int) []Fabric) {
		fabrics := join(t, 2)
		const turns = 2000
		testkit.Within(t, testkit.Moment, func() {
			testkit.Each(2, func(rank int) error {
				f, l := fabrics[rank], fabrics[rank].Data(1-rank)
				rng := rand.New(rand.NewPCG(1, uint64(rank)))
				var buf [1]byte
				for turn := range turns {
					if turn%2 == rank {
						for start, d := time.Now(), time.Duration(rng.IntN(30))*time.Microsecond; time.Since(start) < d; {
						}
						l.Write(buf[:], nil)
						continue
					}
					for {
						f.Arm()
						f.Ready(nil)
						if n, _ := l.Read(buf[:]); n == 1 {
							break
						}
						f.Sleep()
					}
					f.Disarm()
				}
				return nil
			})
		})
	})
}
