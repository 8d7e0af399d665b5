package blame

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// checkReport checks what Report promises of every report.
func checkReport(t testing.TB, text string) {
	t.Helper()
	if !utf8.ValidString(text) || !strings.HasSuffix(text, "\n") {
		t.Fatalf("%q is not text", text)
	}
	lines := 0
	for line := range strings.Lines(text) {
		lines++
		line = strings.TrimSuffix(line, "\n")
		if n := utf8.RuneCountInString(line); n > 100 && !strings.HasPrefix(line, "  log: ") {
			t.Errorf("a line of %d characters: %q", n, line)
		}
		if strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q does something to a terminal", line)
		}
	}
	if lines > 50 {
		t.Errorf("%d lines do not fit on a screen", lines)
	}
}

// The expected reports are written by hand, because people read reports.
func TestReport(t *testing.T) {
	var sixteen []Death
	for rank := range 16 {
		d := Death{Rank: rank, LocalRank: rank % 8, Host: "n1", Exit: 1, Ended: sec(42.2), Tail: raised(gone)}
		if rank > 7 {
			d.Host, d.Signal, d.Exit, d.Stopping = "n2", term, 0, true
		}
		sixteen = append(sixteen, d)
	}
	sixteen[3] = Death{Rank: 3, Host: "n1", Exit: 1, Ended: sec(42.4), Stopping: true,
		Tail:    Words(raised(boom), []string{"step 41 loss 0.5"}),
		LogPath: "runs/mnist/attempts/1/logs/n1.3.err"}
	sixteen[9].Exit, sixteen[9].Signal = 0, 0
	for name, tc := range map[string]struct {
		deaths []Death
		next   string
		want   string
	}{
		"an exception": {sixteen, "the ranks are started again on the same nodes (restart 1 of 3).", `
rank 3 on n1 exited with code 1 and was the first to fail, 42.4 s after the start
  ValueError: boom
  (rank 0 on n1 ended 0.2 s earlier, but only because it lost a peer)
  its last lines:
  | Traceback (most recent call last):
  |   File "train.py", line 9, in <module>
  |     main()
  |   File "train.py", line 7, in main
  |     step()
  |     ^^^^^^
  | ValueError: boom
  | -- standard output --
  | step 41 loss 0.5
  log: runs/mnist/attempts/1/logs/n1.3.err
14 ranks followed: 0-2, 4-8, 10-15
next: the ranks are started again on the same nodes (restart 1 of 3).
`},
		"out of memory": {
			[]Death{{Rank: 0, Host: "gpu-01", Signal: kill, Ended: sec(3725),
				OOM: "the cgroup's oom_kill counter went from 0 to 1; 31.9 of 32 GiB were in use"},
				{Rank: 1, Host: "gpu-01", Exit: 1, Ended: sec(3726), Tail: raised(gone)}}, "", `
rank 0 on gpu-01 was killed by SIGKILL and was the first to fail, 1 h 2 min after the start
  out of memory: the cgroup's oom_kill counter went from 0 to 1; 31.9 of 32 GiB were in use
1 rank followed: 1
`},
		"a traceback in the error file alone": {
			[]Death{{Rank: 0, Host: "n1", Exit: 1, Ended: sec(9), Tail: []string{"step 41 loss 0.5"},
				ErrorFile: &TorchError{Message: boom, Stack: strings.Join(raised(boom), "\n") + "\n"}}}, "", `
rank 0 on n1 exited with code 1, 9.0 s after the start
  ValueError: boom
  its traceback, from its error file:
  | Traceback (most recent call last):
  |   File "train.py", line 9, in <module>
  |     main()
  |   File "train.py", line 7, in main
  |     step()
  |     ^^^^^^
  | ValueError: boom
  its last lines:
  | step 41 loss 0.5
`},
		"a chain of exceptions": {
			[]Death{{Rank: 0, Host: "n1", Exit: 1, Ended: sec(61),
				Tail: during(raised("KeyError: 'lr'"), raised("ConfigError: no learning rate"))}}, "it ends.", `
rank 0 on n1 exited with code 1, 1 min 1 s after the start
  ConfigError: no learning rate
  which came from KeyError: 'lr'
  its last lines:
  | Traceback (most recent call last):
  |   File "train.py", line 9, in <module>
  |     main()
  |   File "train.py", line 7, in main
  |     step()
  |     ^^^^^^
  | KeyError: 'lr'
  |
  | During handling of the above exception, another exception occurred:
  |
  | Traceback (most recent call last):
  |   File "train.py", line 9, in <module>
  |     main()
  |   File "train.py", line 7, in main
  |     step()
  |     ^^^^^^
  | ConfigError: no learning rate
next: it ends.
`},
		"several at once, some saved": {
			[]Death{{Rank: 2, Host: "n1", Exit: 9, Ended: sec(1)}, {Rank: 0, Host: "n1", Exit: 9, Ended: sec(1.1)},
				{Rank: 5, Host: "n2", Exit: 9, Ended: sec(1.2)},
				{Rank: 1, Host: "n1", Exit: 75, Ended: sec(0.9)}}, "", `
rank 2 on n1 exited with code 9 and was the first to fail, 1.0 s after the start
2 ranks failed, too: 0, 5
1 rank saved and asks to be started again: 1
`},
		"all saved": {[]Death{{Rank: 0, Host: "n1", Exit: 75, Ended: sec(7)}, {Rank: 1, Host: "n1", Exit: 75, Ended: sec(7.5)}},
			"the job is requeued", `
rank 0 on n1 saved and asks to be started again (exit code 75), 7.0 s after the start
1 rank saved and asks to be started again: 1
next: the job is requeued
`},
		"told": {[]Death{{Rank: 0, Host: "n1", Signal: term, Stopping: true, Ended: sec(7)}}, "", `
rank 0 on n1 was killed by SIGTERM as it was told to stop, 7.0 s after the start
`},
		"nobody says why": {
			[]Death{{Rank: 0, Host: "n1", Exit: 1, Ended: sec(7), Tail: []string{gone}},
				{Rank: 1, Host: "n1", Exit: 1, Ended: sec(7.1), Tail: []string{reset}}}, "", `
rank 0 on n1 exited with code 1 and was the first to fail, 7.0 s after the start
  RuntimeError: [./gloo/transport/tcp/pair.cc:598] Connection closed by peer [127.0.0.1]:49572
  (it only lost a peer, and no other rank reported a failure: the network failed, or a rank that had
  no time to report it)
  its last lines:
  | RuntimeError: [./gloo/transport/tcp/pair.cc:598] Connection closed by peer [127.0.0.1]:49572
1 rank followed: 1
`},
		"one had ended well": {
			[]Death{{Rank: 0, Host: "n1", Exit: 1, Ended: sec(7), Tail: []string{gone}}, {Rank: 1, Host: "n1", Ended: sec(6)},
				{Rank: 2, Host: "n1", Ended: sec(7.5)}}, "", `
rank 0 on n1 exited with code 1, 7.0 s after the start
  RuntimeError: [./gloo/transport/tcp/pair.cc:598] Connection closed by peer [127.0.0.1]:49572
  (it only lost a peer: rank 1 had ended with 0, 1.0 s before; did it have less data?)
  its last lines:
  | RuntimeError: [./gloo/transport/tcp/pair.cc:598] Connection closed by peer [127.0.0.1]:49572
`},
		"one was still there, and was told to stop": {
			[]Death{{Rank: 0, Host: "n1", Exit: 1, Ended: sec(7), Tail: []string{gone}},
				{Rank: 1, Host: "n1", Signal: term, Stopping: true, Ended: sec(10)},
				{Rank: 2, Host: "n1", Exit: 1, Ended: sec(7.1), Tail: []string{reset}}}, "", `
rank 0 on n1 exited with code 1 and was the first to fail, 7.0 s after the start
  RuntimeError: [./gloo/transport/tcp/pair.cc:598] Connection closed by peer [127.0.0.1]:49572
  (it only lost a peer, and rank 1 reported no error: that rank may have left early (did it have
  less data?) or be stuck, or the network or a node failed)
  its last lines:
  | RuntimeError: [./gloo/transport/tcp/pair.cc:598] Connection closed by peer [127.0.0.1]:49572
2 ranks followed: 1-2
`},
		"two were still there": {
			[]Death{{Rank: 0, Host: "n1", Exit: 1, Ended: sec(7), Tail: []string{gone}},
				{Rank: 1, Host: "n1", Signal: term, Stopping: true, Ended: sec(10)},
				{Rank: 2, Host: "n1", Stopping: true, Ended: sec(10)}}, "", `
rank 0 on n1 exited with code 1 and was the first to fail, 7.0 s after the start
  RuntimeError: [./gloo/transport/tcp/pair.cc:598] Connection closed by peer [127.0.0.1]:49572
  (it only lost a peer, and ranks 1-2 reported no error: one of them may have left early (did it
  have less data?) or be stuck, or the network or a node failed)
  its last lines:
  | RuntimeError: [./gloo/transport/tcp/pair.cc:598] Connection closed by peer [127.0.0.1]:49572
1 rank followed: 1
`},
		"one ends well a moment later": {
			[]Death{{Rank: 0, Host: "n1", Exit: 1, Ended: sec(7), Tail: []string{gone}}, {Rank: 1, Host: "n1", Ended: sec(9)},
				{Rank: 2, Host: "n1", Exit: 1, Ended: sec(7.1), Tail: []string{reset}}}, "", `
rank 0 on n1 exited with code 1 and was the first to fail, 7.0 s after the start
  RuntimeError: [./gloo/transport/tcp/pair.cc:598] Connection closed by peer [127.0.0.1]:49572
  (it only lost a peer: rank 1 ended with 0, 2.0 s later; did it have less data?)
  its last lines:
  | RuntimeError: [./gloo/transport/tcp/pair.cc:598] Connection closed by peer [127.0.0.1]:49572
1 rank followed: 2
`},
		"several had ended well": {
			[]Death{{Rank: 3, Host: "n1", Exit: 1, Ended: sec(7), Tail: []string{gone}}, {Rank: 1, Host: "n1", Ended: sec(6)},
				{Rank: 2, Host: "n1", Ended: sec(4)}, {Rank: 0, Host: "n1", Ended: sec(5)}}, "", `
rank 3 on n1 exited with code 1, 7.0 s after the start
  RuntimeError: [./gloo/transport/tcp/pair.cc:598] Connection closed by peer [127.0.0.1]:49572
  (it only lost a peer: ranks 0-2 had ended with 0, the last of them 1.0 s before; did they have
  less data?)
  its last lines:
  | RuntimeError: [./gloo/transport/tcp/pair.cc:598] Connection closed by peer [127.0.0.1]:49572
`},
		"one was told to, at the same time": {
			[]Death{{Rank: 0, Host: "n1", Exit: 1, Ended: sec(7)}, {Rank: 1, Host: "n1", Signal: term, Stopping: true, Ended: sec(6.98)}}, "", `
rank 0 on n1 exited with code 1 and was the first to fail, 7.0 s after the start
1 rank followed: 1
`},
		"nobody": {[]Death{{}}, "", `
no rank failed
`},
		"words for a terminal": {
			[]Death{{Rank: 0, Host: "n1\x1b[2J", Exit: 1, Ended: sec(0.25), LogPath: "logs/\x1b]0;x\x07n1\n.err", OOM: "",
				Tail: []string{"", "\x1b[31mred\x1b[0m and \x1b]0;title\x07plain", " 10%|#    |\r 99%|#### |\r100%|#####|",
					"a\tb\x00c\u202ed\u009b31mé世\x7f", "", "", "bad \xff byte", "x\r", ""}}}, "", `
rank 0 on n1 exited with code 1, 0.2 s after the start
  its last lines:
  | red and plain
  | 100%|#####|
  | a    bc?dé世
  |
  | bad ? byte
  | x
  log: logs/n1.err
`},
	} {
		t.Run(name, func(t *testing.T) {
			got := Report(tc.deaths, Choose(tc.deaths), tc.next)
			checkReport(t, got)
			// the | of an empty line is followed by a space
			want := strings.ReplaceAll(strings.TrimPrefix(tc.want, "\n"), "  |\n", "  | \n")
			if got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestReportIsBounded(t *testing.T) {
	long := strings.Repeat("wörds and words ", 4000)
	var tail []string
	for range 1000 {
		tail = append(tail, long)
	}
	var deaths []Death
	for rank := range 2000 {
		deaths = append(deaths, Death{Rank: 2 * rank, Host: long, Exit: 1, Ended: sec(5), Stopping: rank > 0})
	}
	deaths[0].Tail, deaths[0].OOM, deaths[0].LogPath = append(tail, raised("ValueError: "+long)...), long, strings.Repeat("/x", 10000)
	got := Report(deaths, 0, long)
	checkReport(t, got)
	if len(got) > 16<<10 {
		t.Errorf("it has %d bytes", len(got))
	}
	if n := strings.Count(got, "\n  | "); n != 20 {
		t.Errorf("it has %d last lines", n)
	}
	for _, want := range []string{"  ValueError: wörds", "1999 ranks followed: 2, 4, 6", "..."} {
		if !strings.Contains(got, want) {
			t.Errorf("it lacks %q", want)
		}
	}
	for _, bad := range []int{-1, len(deaths)} {
		if got := Report(deaths, bad, ""); got != "no rank failed\n" {
			t.Errorf("report of %d: %q", bad, got)
		}
	}
}

// The last line is shown whole, up to 300 characters, because its end may be what matters. Others are cut.
func TestLastLineIsWhole(t *testing.T) {
	last := `time=10:00:00 level=ERROR msg="training failed" err="step 7: all-reduce #41: rank 3: no progress for 20s: it has not ` +
		`entered this call; the last one that it completed is broadcast #40"`
	got := Report([]Death{{Host: "n1", Exit: 1, Tail: []string{last + " earlier", last}}}, 0, "")
	checkReport(t, got)
	want := `  | time=10:00:00 level=ERROR msg="training failed" err="step 7: all-reduce #41: rank 3: no progr...
  | time=10:00:00 level=ERROR msg="training failed" err="step 7: all-reduce #41: rank 3: no progress
    for 20s: it has not entered this call; the last one that it completed is broadcast #40"
`
	if !strings.HasSuffix(got, want) {
		t.Errorf("got\n%swant at its end\n%s", got, want)
	}
}

func FuzzReport(f *testing.F) {
	f.Add("n1", "ValueError: x\r\x1b[0m", "oom", "/a/b", "next\nline", 1, 0)
	f.Add("\xff", "Traceback (most recent call last):\n  File\nE: x\n\x1b", "\u202e", "\x00", "", 0, 11)
	f.Fuzz(func(t *testing.T, host, tail, oom, path, next string, exit, signal int) {
		deaths := []Death{{Host: host, Tail: Words(strings.Split(tail, "\n"), []string{tail}), OOM: oom, LogPath: path,
			Exit: exit, Signal: signal}}
		text := Report(deaths, Choose(deaths), next)
		if next == "" || len(wrap(clean(next, 100), 90, 3)) > 0 {
			checkReport(t, text)
		}
	})
}

func TestWordsAreMostlyThoseOfErrors(t *testing.T) {
	line := func(n int, s string) (all []string) {
		for range n {
			all = append(all, s)
		}
		return all
	}
	for name, tc := range map[string]struct{ errs, outs, wantErrs, wantOuts int }{
		"little of both":  {3, 2, 3, 2},
		"nothing":         {0, 0, 0, 0},
		"output only":     {0, 100, 0, 60},
		"errors only":     {100, 0, 60, 0},
		"much of both":    {100, 100, 52, 8},
		"few errors":      {10, 100, 10, 50},
		"much and little": {100, 3, 57, 3},
	} {
		t.Run(name, func(t *testing.T) {
			got := Words(line(tc.errs, "e"), line(tc.outs, "o"))
			want := line(tc.wantErrs, "e")
			if tc.wantErrs > 0 && tc.wantOuts > 0 {
				want = append(want, "-- standard output --")
			}
			want = append(want, line(tc.wantOuts, "o")...)
			if strings.Join(got, " ") != strings.Join(want, " ") {
				t.Errorf("got %q", got)
			}
		})
	}
	total := 0
	got := Words(append(line(500, "\xff"+strings.Repeat("é", 3000)), "last"), line(500, strings.Repeat("o", 3000)))
	for _, l := range got {
		total += len(l)
		if !utf8.ValidString(l) || len(l) > 1<<10 {
			t.Errorf("a line of %d bytes", len(l))
		}
	}
	if total > 8<<10 || got[len(got)-1][0] != 'o' || !strings.Contains(strings.Join(got, "\n"), "\nlast\n") {
		t.Errorf("%d lines of %d bytes", len(got), total)
	}
}
