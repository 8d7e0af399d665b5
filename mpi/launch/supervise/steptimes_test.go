package supervise

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ddpbatch/mpi/launch/rendezvous"
	"ddpbatch/mpi/launch/watch"
	"ddpbatch/mpi/store"

	"golang.org/x/sys/unix"
)

// A heartbeat file is read only if it is a regular file. The agent does not follow links, and does not wait for pipes.
func TestHeartbeatsAreReadFromFiles(t *testing.T) {
	dir := t.TempDir()
	at := time.Unix(1_800_000_000, 0)
	path := func(name string) string { return filepath.Join(dir, name) }
	long := "9 " + string(make([]byte, 1<<20))
	for name, text := range map[string]string{"step": "7 compute=1.5\n", "touched": "", "rubbish": "\xff\x00", "long": long} {
		must(t, os.WriteFile(path(name), []byte(text), 0o600))
		must(t, os.Chtimes(path(name), at, at))
	}
	must(t, makeUnused(path("unused")))
	must(t, os.Symlink("step", path("link")))
	must(t, unix.Mkfifo(path("pipe"), 0o600))
	must(t, os.Mkdir(path("folder"), 0o700))
	for name, want := range map[string]heartbeat{
		"step":    {at, watch.Beat{Step: 7, Spent: [watch.Parts]float64{1.5, -1, -1}}, true},
		"long":    {at, watch.Beat{Step: 9, Spent: [watch.Parts]float64{-1, -1, -1}}, true},
		"touched": {at: at}, "rubbish": {at: at}, "unused": {}, "missing": {}, "link": {at: time.Now()}, "pipe": {at: time.Now()},
		"folder": {at: time.Now()},
	} {
		h := &heartbeats{paths: []string{path(name)}, steps: true, seen: make([]heartbeat, 1)}
		got := h.read(h.seen)[0]
		if got.beat != want.beat || got.known != want.known || got.at.Sub(want.at).Abs() > time.Minute {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
		h.steps = false
		if got := h.read(h.seen)[0]; got.known || got.at.IsZero() != want.at.IsZero() {
			t.Errorf("%s, where nobody wants to know steps: %+v", name, got)
		}
	}
}

// A file that was not changed since it was read is not read again.
func TestHeartbeatsAreReadOnce(t *testing.T) {
	path, at := filepath.Join(t.TempDir(), "beat"), time.Unix(1_800_000_000, 0)
	h := &heartbeats{paths: []string{path}, steps: true, seen: make([]heartbeat, 1)}
	for _, look := range []struct {
		text string
		at   time.Time
		want int64
	}{{"7", at, 7}, {"8", at, 7}, {"9", at.Add(time.Second), 9}, {"3", at, 3}} {
		must(t, os.WriteFile(path, []byte(look.text), 0o600))
		must(t, os.Chtimes(path, look.at, look.at))
		h.seen = h.read(h.seen)
		if got := h.seen[0]; got.beat.Step != look.want || !got.known || !got.at.Equal(look.at) {
			t.Errorf("%s at %v: %+v, want step %d", look.text, look.at, got, look.want)
		}
	}
}

// askedProcess counts how often its process ID is asked for.
type askedProcess struct {
	*fakeProcess
	asked int
}

func (p *askedProcess) Pid() int { p.asked++; return p.fakeProcess.Pid() }

// Processes are observed only if a worker's heartbeat file shows no sign of life since the previous observation.
func TestProcessesAreLookedAtWithoutABeat(t *testing.T) {
	s := &Supervisor{exits: make(chan *worker, 1)}
	p := &askedProcess{fakeProcess: s.addFake(t, rendezvous.RankNumbers{}, act{})}
	s.workers[0].process = p
	signs, at := &processSigns{}, time.Unix(1_800_000_000, 0)
	for i, look := range []struct {
		at   time.Time
		asks bool
	}{
		{at, true}, // at the first look, the file may have been changed long ago
		{at.Add(time.Second), false}, {at.Add(time.Second), true}, {at, false}, {time.Time{}, true}, {time.Time{}, true}, {at, false},
	} {
		p.asked = 0
		samples, err := signs.samples(s.workers, []heartbeat{{at: look.at}})
		if err != nil || (p.asked > 0) != look.asks || !samples[0].Heartbeat.Equal(look.at) {
			t.Errorf("look %d: asked %d times, %+v, %v", i, p.asked, samples, err)
		}
	}
}

// The contents of a report that agent 0 has not taken, such as the step and that the workers are quiet, are sent again.
func TestReportsThatAreNotTakenAreRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "beat")
		must(t, os.WriteFile(path, []byte("7"), 0o600))
		c := complete(Config{World: rendezvous.World{Index: 1, Count: 2, Host: "n2", Nproc: 1}, Limits: Limits{HangAfter: 8 * time.Second}})
		s := &Supervisor{cfg: c, round: &round{cfg: c, layout: twoMembers()},
			control: &controlChannel{workersOut: make(chan workersReport, 1)}}
		s.steps = &stepWatch{ranks: []int{1}, said: make(map[int]rankBeat)}
		s.addFake(t, rendezvous.RankNumbers{Rank: 1}, act{})
		s.hangWatch = &hangWatch{
			watch: watch.New(c.HangAfter, 1), beats: &heartbeats{paths: []string{path}, steps: true, seen: make([]heartbeat, 1)},
			signs: fakeSigns{[]*fakeProcess{s.workers[0].process.(*fakeProcess)}},
		}
		s.control.workersOut <- workersReport{} // agent 0 is busy
		for range 10 {
			time.Sleep(2 * time.Second)
			s.observe()
		}
		<-s.control.workersOut
		s.observe()
		said := <-s.control.workersOut
		if said.Host != "n2" || len(said.Beats) != 1 || said.Beats[0].Beat.Step != 7 || said.Quiet == nil || !said.Quiet.Quiet {
			t.Errorf("it said %+v", said)
		}
		s.observe()
		select {
		case said := <-s.control.workersOut:
			t.Errorf("it said once more %+v", said)
		default:
		}
	})
}

// gets is a store that records the keys of calls of Get.
type gets struct {
	store.Store
	mu   sync.Mutex
	keys []string
}

func (g *gets) Get(ctx context.Context, key string) ([]byte, error) {
	g.mu.Lock()
	g.keys = append(g.keys, key)
	g.mu.Unlock()
	return g.Store.Get(ctx, key)
}

// Agent 0 waits for the end of each other agent, and for one report of it at a time, whatever the report contains. In task mode, each rank
// has an agent.
func TestAgent0WaitsForOneReportOfEachAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := one(newRunDir(t))
		c.HangAfter = time.Hour
		g := &gets{Store: store.NewMemory()}
		r := &round{cfg: c, store: g, layout: &rendezvous.Layout{}, agent: &Agent{}}
		for i := range 3 {
			r.layout.Participants = append(r.layout.Participants, &rendezvous.Participant{Index: i + 1})
		}
		channel := openControlChannel(ctx, r)
		synctest.Wait()
		want := []string{"end/1", "end/2", "end/3", "outcome", "workers/1/0", "workers/2/0", "workers/3/0"}
		if slices.Sort(g.keys); !slices.Equal(g.keys, want) {
			t.Errorf("it waits for %q, want %q", g.keys, want)
		}
		said := workersReport{Host: "n2", Quiet: &quiet{}, Beats: []rankBeat{{Rank: 1, At: 5, Beat: watch.Beat{Step: 7}}}}
		must(t, rendezvous.SetJSON(ctx, g, "workers/2/0", said))
		got := <-channel.workersIn
		if got.agent != 2 || got.Host != said.Host || got.Quiet == nil || !slices.Equal(got.Beats, said.Beats) {
			t.Errorf("it received %+v", got)
		}
		synctest.Wait()
		if left, err := g.NumKeys(ctx, ""); err != nil || left != 0 {
			t.Errorf("%d keys are left, %v", left, err)
		}
		cancel()
		channel.wait()
	})
}
