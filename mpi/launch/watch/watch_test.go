package watch

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

const timeout = 100 * time.Second

// story is a Watch with regular observations of its workers.
type story struct {
	*Watch
	now     time.Time
	samples []Sample
}

func begin(workers int) *story {
	s := &story{New(timeout, workers), time.Unix(1000, 0), make([]Sample, workers)}
	s.observe(s.now)
	return s
}

// observe returns the workers that hang, and since when all of them have been silent. It returns nil if the Watch does not fire.
func (s *story) observe(now time.Time) (hung []int, since time.Time) {
	s.now = now
	if !s.Observe(now, s.samples) {
		return nil, time.Time{}
	}
	for _, q := range s.Quiet() {
		hung = append(hung, q.Worker)
	}
	return hung, now.Add(-s.silence)
}

// pass observes once every step until d is over, and calls change before each observation. It returns when the Watch first fires, with its
// result.
func (s *story) pass(d, step time.Duration, change func()) (after time.Duration, hung []int, since time.Time) {
	for at := step; at <= d; at += step {
		s.now = s.now.Add(step)
		change()
		if hung, since = s.observe(s.now); hung != nil {
			return at, hung, since
		}
	}
	return 0, nil, time.Time{}
}

func nothing() {}

func TestAnySignOfLifeCounts(t *testing.T) {
	const step = 5 * time.Second
	for name, test := range map[string]struct {
		first  Sample
		change func(s *Sample, n int)
		alive  bool
	}{
		"nothing":                   {Sample{}, func(*Sample, int) {}, false},
		"a line in every 90 s":      {Sample{}, func(s *Sample, n int) { s.Logged = int64(n/18) * 80 }, true},
		"a line in every 110 s":     {Sample{}, func(s *Sample, n int) { s.Logged = int64(n/22) * 80 }, false},
		"a file that was cut":       {Sample{Logged: 1 << 20}, func(s *Sample, n int) { s.Logged = max(0, 1<<20-int64(n)) }, false},
		"full load":                 {Sample{}, func(s *Sample, n int) { s.CPU += step }, true},
		"3 % of a core":             {Sample{}, func(s *Sample, n int) { s.CPU += 3 * step / 100 }, true},
		"gloo's thread, 1.5 %":      {Sample{}, func(s *Sample, n int) { s.CPU += 15 * step / 1000 }, false},
		"a tick of the clock":       {Sample{}, func(s *Sample, n int) { s.CPU += 10 * time.Millisecond }, false},
		"much at once, seldom":      {Sample{}, func(s *Sample, n int) { s.CPU = time.Duration(n/18) * time.Second }, true},
		"load that falls":           {Sample{CPU: time.Hour}, func(s *Sample, n int) { s.CPU -= time.Second }, false},
		"a heartbeat":               {Sample{}, func(s *Sample, n int) { s.Heartbeat = time.Unix(int64(1+n/18), 0) }, true},
		"of a clock that goes back": {Sample{}, func(s *Sample, n int) { s.Heartbeat = time.Unix(int64(9000-n/18), 0) }, true},
		"no heartbeat any more":     {Sample{Heartbeat: time.Unix(5, 0)}, func(s *Sample, n int) { s.Logged++; s.CPU += step }, false},
		"a heartbeat that was removed": {Sample{Heartbeat: time.Unix(5, 0)}, func(s *Sample, n int) {
			s.Heartbeat, s.Logged, s.CPU = time.Time{}, s.Logged+1, s.CPU+step
		}, true}, // /dev/shm may have been emptied, so the heartbeat is not known
		"a heartbeat that was removed, and nothing else": {Sample{Heartbeat: time.Unix(5, 0)},
			func(s *Sample, _ int) { s.Heartbeat = time.Time{} }, false},
		"removed, made anew, and no more": {Sample{Heartbeat: time.Unix(5, 0)}, func(s *Sample, n int) {
			s.Heartbeat, s.Logged = time.Time{}, s.Logged+1
			if n > 1 {
				s.Heartbeat = time.Unix(6, 0)
			}
		}, false},
	} {
		s := begin(1)
		s.samples[0] = test.first
		s.Watch = New(timeout, 1)
		s.Observe(s.now, s.samples)
		n := 0
		after, hung, _ := s.pass(10*timeout, step, func() { n++; test.change(&s.samples[0], n) })
		if (hung == nil) != test.alive || hung != nil && after < timeout {
			t.Errorf("%s: fired after %v: %v; alive: %v", name, after, hung, test.alive)
		}
	}
}

// Quiet reports how long workers have been silent, and which fell silent first.
func TestFirstToFallSilentIsReported(t *testing.T) {
	const step = time.Second
	s := begin(4)
	ends := []time.Duration{40 * time.Second, 10 * time.Second, 30 * time.Second, 10 * time.Second}
	began := s.now
	s.samples[3].Stopped = true // worker 1 falls silent in the same second
	_, hung, since := s.pass(time.Hour, step, func() {
		for i, end := range ends {
			if s.now.Sub(began) <= end {
				s.samples[i].Logged++
			}
		}
	})
	var silences []time.Duration
	for _, q := range s.Quiet() {
		silences = append(silences, q.For)
	}
	if want := []time.Duration{130 * time.Second, 130 * time.Second, 110 * time.Second, timeout}; !slices.Equal(silences, want) ||
		!s.Quiet()[0].Stopped {
		t.Errorf("they were silent for %v, want %v", silences, want)
	}
	if !slices.Equal(hung, []int{3, 1, 2, 0}) || since.Sub(began) != 40*time.Second || s.now.Sub(since) != timeout {
		t.Errorf("hung %v since %v, told at %v", hung, since.Sub(began), s.now.Sub(began))
	}
	// a sign of life takes that back, and the time starts again
	s.samples[2].Logged++
	if after, hung, _ := s.pass(timeout, step, nothing); hung != nil {
		t.Errorf("after a sign it fired again after %v", after)
	}
	if after, _, _ := s.pass(timeout, step, nothing); after != step {
		t.Errorf("it fired %v after that", after)
	}
}

// The Watch does not fire while one worker gives signs of life, and the end of a worker counts as a sign. Workers that have ended do not
// hang.
func TestOthersMayWait(t *testing.T) {
	s := begin(3)
	if after, hung, _ := s.pass(5*timeout, time.Second, func() { s.samples[1].Logged++ }); hung != nil {
		t.Errorf("fired after %v: %v", after, hung)
	}
	s.samples[1].Ended = true
	after, hung, _ := s.pass(5*timeout, time.Second, nothing)
	if !slices.Equal(hung, []int{0, 2}) || after != timeout+time.Second {
		t.Errorf("hung %v after %v", hung, after)
	}
	s.samples[0].Ended, s.samples[2].Ended = true, true
	if _, hung, _ := s.pass(5*timeout, time.Second, nothing); hung != nil {
		t.Errorf("none is left, and %v hang", hung)
	}
	// the ends of all workers count as silence, too, but only after the timeout
	s = begin(1)
	s.pass(5*timeout, time.Second, func() { s.samples[0].Logged++ })
	s.samples[0].Ended = true
	for at := time.Duration(0); at <= timeout; at += time.Second {
		s.now = s.now.Add(time.Second)
		if quiet := s.Observe(s.now, s.samples); quiet != (at == timeout) {
			t.Errorf("%v after the end of the only worker it is quiet: %v", at, quiet)
		}
	}
}

// Time in which this process did not run either counts as the workers' silence only for a quarter of the timeout.
func TestSuspendedWatchBlamesNoRank(t *testing.T) {
	s := begin(1)
	s.pass(timeout/2, time.Second, nothing)
	if hung, _ := s.observe(s.now.Add(24 * time.Hour)); hung != nil {
		t.Errorf("%v hang after a day of which nothing was seen", hung)
	}
	if after, _, _ := s.pass(timeout, time.Second, nothing); after != timeout/4 {
		t.Errorf("then it fired after %v, and not a quarter of the timeout", after)
	}
	// a clock that goes back does not add silence
	s = begin(1)
	s.pass(timeout-time.Second, time.Second, nothing)
	if hung, _ := s.observe(s.now.Add(-time.Hour)); hung != nil {
		t.Error("fired as the clock went back")
	}
}

// Whatever is observed, the Watch fires if and only if a simple computation finds no sign for the timeout.
func TestWatchFiresOnlyAfterTheTimeout(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		workers := rapid.IntRange(1, 4).Draw(t, "workers")
		s := begin(workers)
		began := s.now
		last := make([]time.Time, workers) // the time of each worker's last sign
		for i := range last {
			last[i] = began
		}
		beats := make([]bool, workers)
		for range rapid.IntRange(1, 80).Draw(t, "observations") {
			s.now = s.now.Add(time.Duration(rapid.IntRange(1, 25).Draw(t, "seconds")) * time.Second)
			busy := rapid.IntRange(0, 3).Draw(t, "busy") == 0
			for i := range workers {
				sample := &s.samples[i]
				sample.Stopped = rapid.Bool().Draw(t, "stopped")
				if !busy {
					continue
				}
				switch rapid.IntRange(0, 3).Draw(t, "sign") {
				case 1:
					sample.Logged += 10
					if !beats[i] {
						last[i] = s.now
					}
				case 2:
					sample.Heartbeat = s.now
					beats[i], last[i] = true, s.now
				case 3:
					sample.CPU += time.Minute
					if !beats[i] {
						last[i] = s.now
					}
				}
			}
			newest := slices.MaxFunc(last, time.Time.Compare)
			hung, since := s.observe(s.now)
			if want := s.now.Sub(newest) >= timeout; (hung != nil) != want {
				t.Fatalf("after %v of silence: %v", s.now.Sub(newest), hung)
			}
			if hung == nil {
				continue
			}
			if len(hung) != workers || !since.Equal(newest) {
				t.Fatalf("%v of %d since %v, want %v", hung, workers, since, newest)
			}
			for i := 1; i < len(hung); i++ {
				if last[hung[i-1]].After(last[hung[i]]) {
					t.Fatalf("%v: %d fell silent after %d", hung, hung[i-1], hung[i])
				}
			}
		}
	})
}

// The Watch fires in a loop as an agent has it, here on the bubble's clock.
func TestWatchFiresInARealLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &story{New(time.Minute, 2), time.Time{}, make([]Sample, 2)}
		began := time.Now()
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for now := range tick.C {
			if now.Sub(began) < 90*time.Second {
				s.samples[1].Heartbeat = now
			}
			if hung, since := s.observe(now); hung != nil {
				if !slices.Equal(hung, []int{0, 1}) || since.Sub(began) != 89*time.Second || now.Sub(began) != 149*time.Second {
					t.Errorf("%v since %v, told at %v", hung, since.Sub(began), now.Sub(began))
				}
				return
			}
		}
	})
}
