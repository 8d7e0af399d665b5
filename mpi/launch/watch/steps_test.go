package watch

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// synchronous simulates windows of ranks that wait for the slowest one in each step. of returns the time that a rank spends without
// waiting.
func synchronous(t *testing.T, hosts []string, windows int, of func(window, rank int) (compute, input float64)) [][]SlowRank {
	t.Helper()
	const steps = 20
	s := NewSteps(len(hosts))
	now := time.Unix(1_800_000_000, 0)
	beats := make([]Beat, len(hosts))
	var slow [][]SlowRank
	for window := range windows + 1 {
		for rank, host := range hosts {
			s.Note(rank, host, now, beats[rank])
		}
		if w, ok := s.Window(); ok {
			slow = append(slow, w.Slow)
		}
		longest := 0.0
		for rank := range hosts {
			compute, input := of(window, rank)
			longest = max(longest, compute+input)
		}
		for rank := range hosts {
			compute, input := of(window, rank)
			beats[rank].Step += steps
			for part, spent := range [Parts]float64{compute, input, longest - compute - input} {
				beats[rank].Spent[part] += steps * spent
			}
		}
		now = now.Add(time.Duration(steps * longest * float64(time.Second)))
	}
	return slow
}

func TestSlowRanksAreNamedAfterThreeWindows(t *testing.T) {
	four := []string{"n1", "n1", "n2", "n2"}
	for name, test := range map[string]struct {
		of   func(window, rank int) (compute, input float64)
		want []SlowRank
	}{
		"nobody": {func(_, rank int) (float64, float64) { return 0.1 + 0.001*float64(rank), 0.01 }, nil},
		"compute": {func(_, rank int) (float64, float64) {
			return []float64{0.1, 0.1, 0.1, 0.2}[rank], 0
		}, []SlowRank{{3, "n2", 2, Compute}}},
		"input": {func(_, rank int) (float64, float64) {
			return 0.1, []float64{0, 0.1, 0, 0}[rank]
		}, []SlowRank{{1, "n1", 2, Input}}},
		"a node": {func(_, rank int) (float64, float64) {
			return []float64{0.1, 0.1, 0.2, 0.2}[rank], 0
		}, []SlowRank{{-1, "n2", 2, Compute}}},
		"too little":     {func(_, rank int) (float64, float64) { return []float64{0.1, 0.1, 0.1, 0.12}[rank], 0 }, nil},
		"microseconds":   {func(_, rank int) (float64, float64) { return []float64{1, 1, 1, 5}[rank] * 1e-4, 0 }, nil},
		"another each":   {func(window, rank int) (float64, float64) { return 0.1 + 0.1*float64(btoi(window%4 == rank)), 0 }, nil},
		"spread already": {func(_, rank int) (float64, float64) { return 0.1 * float64(1+rank), 0 }, nil},
	} {
		slow := synchronous(t, four, 6, test.of)
		for i, got := range slow {
			want := test.want
			if i < slowWindows-1 {
				want = nil
			}
			for j := range got {
				got[j].Times = float64(int(got[j].Times*100+0.5)) / 100
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s, window %d: %+v, want %+v", name, i, got, want)
			}
		}
		if len(slow) != 6 {
			t.Errorf("%s: %d windows", name, len(slow))
		}
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// A rank that recovers is named for a few more windows, and then no longer.
func TestARankThatGetsWell(t *testing.T) {
	slow := synchronous(t, []string{"a", "b", "c"}, 9, func(window, rank int) (float64, float64) {
		return 0.1 + 0.1*float64(btoi(rank == 2 && window < 4)), 0
	})
	var counts []int
	for _, s := range slow {
		counts = append(counts, len(s))
	}
	if want := []int{0, 0, 1, 1, 1, 1, 0, 0, 0}; !slices.Equal(counts, want) {
		t.Errorf("named in %v, want %v", counts, want)
	}
}

// A rank whose steps are longer than a window stays named in windows in which it does not finish a step. A rank that no longer finishes any
// step is named only for some more windows.
func TestASlowRankStaysNamedBetweenItsSteps(t *testing.T) {
	const window = 60
	for name, paces := range map[string][]int{ // seconds per step
		"two ranks":  {10, 90},
		"four ranks": {10, 10, 10, 150},
	} {
		s := NewSteps(len(paces))
		slow := len(paces) - 1
		named, without := false, 0 // without: windows in a row without a step of the slow rank
		for now := 0; now < 40*window; now += window {
			for rank, pace := range paces {
				step := now / pace
				if rank == slow {
					step = min(step, 10)
				}
				s.Note(rank, string(rune('a'+rank)), time.Unix(int64(1_800_000_000+step*pace), 0), Beat{Step: int64(step), Spent: last0})
			}
			w, ok := s.Window()
			if now > 0 && !ok {
				t.Fatalf("%s: nothing is known of the window that ends after %d s", name, now)
			}
			named = named || len(w.Slow) > 0
			if without++; w.Whole[slow] > 0 {
				without = 0
			}
			want := []SlowRank{{slow, string(rune('a' + slow)), float64(paces[slow]) / 10, Parts}}
			if without >= 9 {
				want = nil
			}
			if named && !slices.Equal(w.Slow, want) {
				t.Errorf("%s, after %d s: %+v, want %+v", name, now, w.Slow, want)
			}
		}
		if without < 10 {
			t.Errorf("%s: it is named: %t, in %d windows without a step of its own", name, named, without)
		}
	}
}

// An agent's report after the end of a window counts in the next one, with the times at which the steps were finished.
func TestReportsThatComeLate(t *testing.T) {
	s := NewSteps(4)
	hosts := []string{"n1", "n1", "n2", "n2"}
	total := [4]float64{}
	var last StepWindow
	for window := range 12 {
		for rank, host := range hosts {
			due := window
			if host == "n2" { // one window late, and every third time two
				due = max(0, window-1-(window%3)/2)
			}
			pace := []int{2, 2, 2, 4}[rank]
			s.Note(rank, host, time.Unix(int64(1_800_000_000+60*due), 0), Beat{Step: int64(60 * due / pace), Spent: last0})
		}
		w, ok := s.Window()
		if window > 0 && !ok {
			t.Fatalf("window %d: nothing is known", window)
		}
		for rank, x := range w.Whole {
			if x != 0 && x != []float64{2, 2, 2, 4}[rank] {
				t.Errorf("window %d, rank %d: %v s a step", window, rank, x)
			}
			total[rank] += x
		}
		last = w
	}
	if want := []SlowRank{{3, "n2", 2, Parts}}; !slices.Equal(last.Slow, want) || total[2] == 0 {
		t.Errorf("%+v, want %+v", last.Slow, want)
	}
}

// In a healthy run, whose ranks differ only as much as on machines of one kind, no rank is named.
func TestNoiseNamesNoRank(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, ranks := range []int{2, 8, 64} {
		hosts := make([]string, ranks)
		for i := range hosts {
			hosts[i] = string(rune('a' + i/8))
		}
		noise := map[[2]int]float64{}
		for i, slow := range synchronous(t, hosts, 500, func(window, rank int) (float64, float64) {
			at := [2]int{window, rank}
			if _, there := noise[at]; !there {
				noise[at] = random.NormFloat64() * 0.005
			}
			return max(0.08, 0.1+noise[at]), 0.002
		}) {
			if slow != nil {
				t.Fatalf("%d ranks, window %d: %+v", ranks, i, slow)
			}
		}
	}
}

// Ranks that do not report how their time is divided are compared by whole steps. These differ only if ranks do not wait for each other.
func TestStepsAlone(t *testing.T) {
	s := NewSteps(4)
	now := time.Unix(1_800_000_000, 0)
	var last StepWindow
	for window := range 5 {
		for rank, pace := range []int64{10, 10, 10, 5} {
			b, ok := ParseBeat([]byte{})
			if b.Step = int64(window) * pace; ok {
				t.Fatal("an empty file has a step")
			}
			s.Note(rank, "n", now, b)
		}
		now = now.Add(10 * time.Second)
		last, _ = s.Window()
	}
	want := []SlowRank{{3, "n", 2, Parts}}
	if !slices.Equal(last.Slow, want) || last.Part[Compute] != nil || !slices.Equal(last.Whole, []float64{1, 1, 1, 2}) {
		t.Errorf("%+v, want %+v", last, want)
	}
	s.Note(0, "n", now, Beat{Step: 1, Spent: last0}) // the program has restarted
	if w, ok := s.Window(); ok {
		t.Errorf("of fewer steps: %+v", w)
	}
	s.Note(-1, "n", now, Beat{})
	s.Note(4, "n", now, Beat{})
}

var last0 = [Parts]float64{-1, -1, -1}

func TestParseBeat(t *testing.T) {
	for text, want := range map[string]Beat{
		"1200\n":  {1200, last0},
		"0":       {0, last0},
		" 7 x=1 ": {7, last0},
		"1200 input=12.5 compute=300.1 comm=40.2": {1200, [Parts]float64{300.1, 12.5, 40.2}},
		"3 input=-1 compute=NaN comm=inf":         {3, last0},
		"3 input= compute comm=1e300 input=2":     {3, [Parts]float64{-1, 2, -1}},
	} {
		if got, ok := ParseBeat([]byte(text)); !ok || got != want {
			t.Errorf("%q: %+v, %v; want %+v", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "\n", "x", "-1", "1.5", "99999999999999999999", "\x00\x00"} {
		if got, ok := ParseBeat([]byte(text)); ok {
			t.Errorf("%q: %+v", text, got)
		}
	}
	b := Beat{12, [Parts]float64{1.5, 0, 0.25}}
	if got, ok := ParseBeat(AppendBeat(nil, b)); !ok || got != b {
		t.Errorf("%+v became %+v, %v", b, got, ok)
	}
}

func FuzzParseBeat(f *testing.F) {
	f.Add([]byte("1200 input=12.5 compute=300.1 comm=40.2\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		b, ok := ParseBeat(text)
		if b.Step < 0 || !ok && b != (Beat{Spent: last0}) {
			t.Fatalf("%+v, %v", b, ok)
		}
		for _, x := range b.Spent {
			if !(x == -1 || x >= 0 && x < 1<<32) {
				t.Fatalf("%+v", b)
			}
		}
	})
}
