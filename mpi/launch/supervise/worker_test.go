package supervise

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/launch/output"
	"ddpbatch/mpi/launch/rendezvous"
)

// Each worker gets its own local rank in its arguments. The command's name and the caller's list stay as they are.
func TestCommandHasEachWorkersLocalRank(t *testing.T) {
	c := Config{Workers: Workers{Command: []string{"a${local_rank}", "--local-rank=${local_rank}", "${local_rank}${local_rank}",
		"-r$local_rank.log", "$local_ranks $LOCAL_RANK", "$${local_rank} $$local_rank $$", "${rank}", "x"}}}
	for local, want := range [][]string{
		{"a${local_rank}", "--local-rank=0", "00", "-r0.log", "$local_ranks $LOCAL_RANK", "${local_rank} $local_rank $$", "${rank}", "x"},
		{"a${local_rank}", "--local-rank=1", "11", "-r1.log", "$local_ranks $LOCAL_RANK", "${local_rank} $local_rank $$", "${rank}", "x"},
	} {
		if got := c.commandOf(rendezvous.RankNumbers{Rank: 7, LocalRank: local}); !slices.Equal(got, want) {
			t.Errorf("local rank %d: %q, want %q", local, got, want)
		}
	}
}

func TestCommandIsFoundInTheWorkersPath(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a/tool", "b/tool", "b/only", "here"} {
		path := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must(t, os.WriteFile(path, nil, 0o755))
	}
	must(t, os.WriteFile(filepath.Join(dir, "a/only"), nil, 0o644)) // not executable, so the next one is used
	must(t, os.WriteFile(filepath.Join(dir, "a/never"), nil, 0o644))
	path := "PATH=" + filepath.Join(dir, "a") + ":" + filepath.Join(dir, "b")
	for _, tc := range []struct {
		name, env string
		want      string // below dir
		exit      int
	}{
		{"tool", path, "a/tool", 0},
		{"only", path, "b/only", 0},
		{"tool", "PATH=b:a", "b/tool", 0},     // relative to the workers' working directory
		{"here", "PATH=:/nowhere", "here", 0}, // an empty entry is the working directory
		{"./here", "PATH=", "here", 0},
		{"b/tool", path, "b/tool", 0},
		{filepath.Join(dir, "here"), "", "here", 0},
		{"never", path, "", exitNotExecutable},
		{"nothing", path, "", exitNotFound},
		{"tool", "HOME=/", "", exitNotFound},
	} {
		got, err := Config{Workers: Workers{Dir: dir, Env: []string{"PATH=/not/this", tc.env}}}.lookPath(tc.name)
		var start *startError
		switch {
		case tc.exit == 0 && (err != nil || got != filepath.Join(dir, tc.want)):
			t.Errorf("%s with %s is %s, %v; want %s", tc.name, tc.env, got, err, tc.want)
		case tc.exit != 0 && (!errors.As(err, &start) || start.exit != tc.exit):
			t.Errorf("%s with %s is %s, %v; want exit %d", tc.name, tc.env, got, err, tc.exit)
		}
	}
}

// The report has a worker's last lines even if they are read late, on a busy machine or behind a slow console.
func TestLastWordsAreRead(t *testing.T) {
	release := make(chan struct{})
	mux, err := output.NewMux(output.Config{}, output.To{Stdout: slowWriter{release}}, nil)
	must(t, err)
	defer mux.Close()
	out, errs, err := mux.Worker(output.Worker{}, output.Paths{})
	must(t, err)
	errs.Drop()
	pipe, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", out.Pipe().Fd()), os.O_WRONLY, 0)
	must(t, err)
	out.Begin()
	_, err = pipe.WriteString("working\n")
	must(t, err)
	testkit.Eventually(t, "the first line is read", func() bool { return out.Grown() > 0 })
	_, err = pipe.WriteString("it failed\n")
	must(t, err)
	must(t, pipe.Close())
	time.AfterFunc(2*otherWords, func() { close(release) })
	(&worker{out: out, errs: errs}).readOut()
	if got := out.Tail(1); !slices.Equal(got, []string{"it failed"}) {
		t.Errorf("the last words are %q", got)
	}
	<-out.Done()
}

// slowWriter blocks until it is released.
type slowWriter struct{ release <-chan struct{} }

func (s slowWriter) Write(p []byte) (int, error) {
	<-s.release
	return len(p), nil
}
