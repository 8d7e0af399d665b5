package main

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
	"ddpbatch/scripts/bench/internal/command"
	"ddpbatch/scripts/bench/internal/processes"
)

var threeSides = []side{{name: "ddpbatch", ours: true}, {name: "A"}, {name: "B"}}

// filled returns a table of two sizes, whose samples of each side are those of the given launches.
func filled(ours, a, b []float64) table {
	t := newTable(options{Common: command.Common{Launches: len(ours)}, begin: 64, end: 64, factor: 2},
		setting{"allreduce", "shm", 2}, threeSides)
	for turn := range ours {
		for name, us := range map[string]float64{"ddpbatch": ours[turn], "A": a[turn], "B": b[turn]} {
			if !math.IsNaN(us) {
				t.add(turn, name, outcome{samples: []sample{{size: 64, us: us}}})
			}
		}
	}
	return t
}

func TestCompareFindsTheBestPeer(t *testing.T) {
	nan := math.NaN()
	for _, tt := range []struct {
		name          string
		ours, a, b    []float64
		peer, verdict string
		ratio         float64
	}{
		{"faster", []float64{1, 1, 1}, []float64{2, 2, 2}, []float64{4, 4, 4}, "A", "win", 0.5},
		{"slower", []float64{8, 8, 8}, []float64{9, 9, 9}, []float64{4, 4, 4}, "B", "lose", 2},
		{"now and then", []float64{1, 3, 3}, []float64{2, 2, 2}, []float64{9, 9, 9}, "A", "even", 1.5},
		// launch 2 was slow for all sides: the ratio is computed per launch, not from medians
		{"paired", []float64{1, 50, 3}, []float64{2, 100, 6}, []float64{999, 999, 999}, "A", "win", 0.5},
		{"a peer that gave nothing", []float64{1, 1, 1}, []float64{nan, nan, nan}, []float64{4, 4, 4}, "B", "win", 0.25},
		{"ours gave nothing", []float64{nan, nan, nan}, []float64{2, 2, 2}, []float64{4, 4, 4}, "A", "lose", nan},
		{"one launch of ours is missing", []float64{1, nan, 1}, []float64{2, 2, 2}, []float64{4, 4, 4}, "A", "lose", 0.5},
		{"the fastest peer was there once", []float64{1, 1, 1}, []float64{0.5, nan, nan}, []float64{4, 4, 4}, "B", "win", 0.25},
		{"no peer was there each time", []float64{1, 1, 1}, []float64{2, nan, 2}, []float64{nan, 4, 4}, "", "-", nan},
		{"one launch cannot be compared", []float64{1}, []float64{2}, []float64{4}, "A", "-", 0.5},
		{"nobody was there each time", []float64{1, nan, 1}, []float64{2, nan, 2}, []float64{nan, 4, 4}, "", "lose", nan},
		{"all peers gave nothing", []float64{1, 1, 1}, []float64{nan, nan, nan}, []float64{nan, nan, nan}, "", "-", nan},
	} {
		table := filled(tt.ours, tt.a, tt.b)
		table.compare(threeSides)
		c := table.Rows[0].Comparisons[0]
		if got := float64(c.Ratio); c.Peer != tt.peer || c.Verdict != tt.verdict || got != tt.ratio &&
			!(math.IsNaN(got) && math.IsNaN(tt.ratio)) {
			t.Errorf("%s: %s, %v, %s; want %s, %v, %s", tt.name, c.Peer, got, c.Verdict, tt.peer, tt.ratio, tt.verdict)
		}
	}
}

func TestWrongResultsDoNotCount(t *testing.T) {
	table := filled([]float64{2, 2}, []float64{1, 1}, []float64{4, 4})
	table.Rows[0].Wrong["A"] = 1
	table.compare(threeSides)
	if c := table.Rows[0].Comparisons[0]; c.Peer != "B" || c.Verdict != "win" {
		t.Errorf("against a peer whose results are wrong: %+v", c)
	}
	table = filled([]float64{1, 1}, []float64{2, 2}, []float64{4, 4})
	table.Rows[0].Wrong["ddpbatch"] = 1
	table.compare(threeSides)
	if c := table.Rows[0].Comparisons[0]; c.Verdict != "lose" {
		t.Errorf("fast and wrong: %+v", c)
	}
	var text bytes.Buffer
	table.print(&text)
	for _, want := range []string{"1 WRONG", "0 of 1 comparisons won", "allreduce, shm, 2 ranks"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the table does not say %q:\n%s", want, text.String())
		}
	}
}

// If a launch of ddpbatch fails after its rows or does not end, its rows win nothing.
func TestFailedLaunchOfOursIsLost(t *testing.T) {
	for name, out := range map[string]outcome{
		"failed": {Outcome: processes.Outcome{Fault: errors.New("exit code 3: no such device")}},
		"hung":   {Outcome: processes.Outcome{Hung: true}},
	} {
		table := filled([]float64{1, 1}, []float64{2, 2}, []float64{4, 4})
		out.samples = []sample{{size: 64, us: 1}}
		table.add(1, "ddpbatch", out)
		table.compare(threeSides)
		if c := table.Rows[0].Comparisons[0]; c.Verdict != "lose" || c.Ratio != 0.5 {
			t.Errorf("a launch of ours %s: %+v", name, c)
		}
	}
}

func TestRowWithoutAPeerIsNotWon(t *testing.T) {
	table := filled([]float64{1, 1}, []float64{2, math.NaN()}, []float64{math.NaN(), 4})
	table.compare(threeSides)
	var text bytes.Buffer
	table.print(&text)
	if !strings.Contains(text.String(), "0 of 1 comparisons won") {
		t.Errorf("a row without a peer is won:\n%s", text.String())
	}
}

// An interval of fewer launches shows that it covers less than the header promises.
func TestPrintSaysWhatFewLaunchesCover(t *testing.T) {
	ours := []float64{1, 1, 1, 1, 1, 1, 1}
	peer := []float64{2, 2, 2, 2, 2, 2, 2}
	const note = "(93.8 %)" // of 5 launches: 1 - 2/2^5
	for _, missing := range []int{0, 2} {
		for i := range missing {
			ours[i] = math.NaN()
		}
		table := filled(ours, peer, peer)
		table.compare(threeSides)
		var text bytes.Buffer
		table.print(&text)
		if strings.Contains(text.String(), note) != (missing > 0) || strings.Contains(text.String(), "%") != (missing > 0) {
			t.Errorf("%d launches are missing:\n%s", missing, text.String())
		}
	}
}

func TestPrintKeepsFaults(t *testing.T) {
	table := filled([]float64{1, 1}, []float64{2, 2}, []float64{4, 4})
	table.add(1, "A", outcome{Outcome: processes.Outcome{Fault: errors.New("exit code 3: no such device")}})
	table.add(0, "B", outcome{Outcome: processes.Outcome{Hung: true}})
	table.compare(threeSides)
	var text bytes.Buffer
	table.print(&text)
	for _, want := range []string{"A, launch 2: exit code 3: no such device",
		"B did not end by itself after its last row in 1 of 2 launches", "1 of 1 comparisons won"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the table does not say %q:\n%s", want, text.String())
		}
	}
}

var quickly = options{collectives: []string{"allreduce"}, begin: 4, end: 64, factor: 4, Common: command.Common{Launches: 1},
	budget: time.Millisecond}

// script returns a side whose launch is a shell script; $1 is a file of the test.
func script(text, file string) side {
	return side{
		name: "script", parse: parsePeer, takes: func(setting) bool { return true },
		commands: func(options, setting) []*exec.Cmd {
			return []*exec.Cmd{exec.Command("/bin/sh", "-c", text, "sh", file)}
		},
	}
}

func TestLaunchReadsRowsAndFaults(t *testing.T) {
	for _, name := range []string{"SLURM_NTASKS", "WORLD_SIZE", "DDPBATCH_TRANSPORT", "OMPI_MCA_btl", "UCX_TLS", "MPIR_CVAR_NOLOCAL",
		"PMI_RANK", "OMP_NUM_THREADS"} {
		t.Setenv(name, "8") // variables of an enclosing job, which a launch must not inherit
	}
	for _, tt := range []struct {
		name, text string
		rows       int
		hung       bool
		fault      string
	}{
		{"in order", `echo hello; echo row 4 0.5 0; echo row 16 1e1 2; echo end; exit ` +
			`$SLURM_NTASKS$WORLD_SIZE$DDPBATCH_TRANSPORT$OMPI_MCA_btl$UCX_TLS$MPIR_CVAR_NOLOCAL$PMI_RANK$OMP_NUM_THREADS`, 2, false, ""},
		{"hangs at its end", `echo row 4 0.5 0; echo end; sleep 1000`, 1, true, ""},
		{"fails", `echo row 4 0.5 0; echo first >&2; echo the reason >&2; exit 3`, 1, false, "exit code 3: the reason"},
		{"is killed", `kill -9 $$`, 0, false, "exit code 137: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := launch(t.Context(), quickly, setting{"allreduce", "shm", 2}, script(tt.text, ""))
			if err != nil || len(got.samples) != tt.rows || got.Hung != tt.hung || said(got.Fault) != tt.fault {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
	got, _ := launch(t.Context(), quickly, setting{"allreduce", "shm", 2}, script(`echo row 16 1e1 2; echo end`, ""))
	if len(got.samples) != 1 || got.samples[0] != (sample{16, 10, 2}) {
		t.Errorf("the row is read as %+v", got.samples)
	}
}

// A side that cannot be started is a fault of that side, and does not end the comparison.
func TestLaunchThatCannotStartIsAFault(t *testing.T) {
	absent := script("", "")
	absent.commands = func(options, setting) []*exec.Cmd { return []*exec.Cmd{exec.Command("/nonexistent/mpirun")} }
	got, err := launch(t.Context(), quickly, setting{"allreduce", "shm", 2}, absent)
	if err != nil || !strings.HasPrefix(said(got.Fault), "start it: ") || len(got.samples) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

// Start-up is the time to the first row, by the caller's clock. The launch continues only when the line after that row was received.
func TestLaunchTimesStartup(t *testing.T) {
	file := filepath.Join(t.TempDir(), "received")
	s := script(`sleep 0.05; echo row 0 0 0; echo received; until [ -e "$1" ]; do :; done; sleep 0.05; echo end`, file)
	begin, received := time.Now(), time.Duration(0)
	s.parse = func(line string) (sample, bool) {
		if line == "received" {
			received = time.Since(begin)
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Error(err)
			}
		}
		return parsePeer(line)
	}
	got, err := launch(t.Context(), quickly, setting{"startup", "shm", 2}, s)
	if err != nil || len(got.samples) != 1 || got.samples[0].us < 50_000 || got.samples[0].us > float64(received.Microseconds()) {
		t.Errorf("%+v, %v; want 50 ms or more, and no more than %v", got, err, received)
	}
}

// launch ends the processes that a launch leaves behind, even in other sessions, which MPI launchers create. It also ends a launch that is
// interrupted.
func TestLaunchLeavesNothing(t *testing.T) {
	const orphan = `setsid sh -c 'echo $$ >"$1"; exec sleep 1000' sh "$1" & while ! [ -s "$1" ]; do sleep 0.01; done; `
	gone := func(file string) {
		t.Helper()
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, "the orphan is gone", func() bool {
			status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
			return err != nil || bytes.Contains(status, []byte(") Z ")) || syscall.Kill(pid, 0) != nil
		})
	}
	file := filepath.Join(t.TempDir(), "pid")
	if _, err := launch(t.Context(), quickly, setting{"allreduce", "shm", 2}, script(orphan+"echo end", file)); err != nil {
		t.Fatal(err)
	}
	gone(file)

	file = filepath.Join(t.TempDir(), "pid")
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := launch(ctx, quickly, setting{"allreduce", "shm", 2}, script(orphan+"sleep 1000", file))
		done <- err
	}()
	testkit.Eventually(t, "the orphan is there", func() bool {
		text, err := os.ReadFile(file)
		return err == nil && len(text) > 0
	})
	cancel(errors.New("a signal")) // signal.NotifyContext does the same
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("an interrupted launch returns %v", err)
	}
	gone(file)
}

func TestMeasureTakesTurns(t *testing.T) {
	file := filepath.Join(t.TempDir(), "order")
	one := func(name string) side {
		s := script("echo "+name+` >>"$1"; echo row 4 1 0; echo end`, file)
		s.name = name
		return s
	}
	o := quickly
	o.Launches = 3
	sides := []side{one("ours"), one("A"), one("B")}
	sides[0].ours = true
	table, err := measure(t.Context(), o, setting{"allreduce", "shm", 2}, sides, new(bytes.Buffer))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(strings.Fields(string(text)), " "), "ours A B A B ours B ours A"; got != want {
		t.Errorf("order %q, want %q", got, want)
	}
	if r := table.Rows[0]; len(r.Samples["A"]) != 3 || r.Comparisons[0].Ratio != 1 || r.Comparisons[0].Verdict != "even" {
		t.Errorf("%+v", r)
	}
}

// said returns an error's text, or "" if it is nil.
func said(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
