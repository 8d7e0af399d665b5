package main

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
)

// TestLogQueueNeverWaits writes far more than a pipe holds that nobody reads.
func TestLogQueueNeverWaits(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	q := newLogQueue(w)
	line := []byte(strings.Repeat("x", 1<<10) + "\n")
	written := make(chan struct{})
	go func() {
		defer close(written)
		for range 10 * logQueueLength {
			q.Write(line)
		}
	}()
	select {
	case <-written:
	case <-time.After(testkit.Patience):
		t.Fatal("a message waits for the console")
	}
	if q.dropped.Load() == 0 {
		t.Error("nothing was dropped, so the pipe was read")
	}
	// once it is read again, what was lost is said
	text := make(chan string)
	go func() {
		data, _ := io.ReadAll(r)
		text <- string(data)
	}()
	q.Write([]byte("at last\n"))
	q.end()
	<-q.done
	w.Close()
	if got := <-text; !strings.Contains(got, "messages came while nobody read the console") {
		t.Errorf("%d bytes were read, and no word of those that were lost", len(got))
	}
}

// TestLogQueueIsWhole: what is queued at the end is shown, in order.
func TestLogQueueIsWhole(t *testing.T) {
	var out bytes.Buffer
	q := newLogQueue(&out)
	var want strings.Builder
	for i := range 100 {
		line := strings.Repeat("y", i) + "\n"
		want.WriteString(line)
		q.Write([]byte(line))
	}
	q.end()
	<-q.done
	if out.String() != want.String() {
		t.Errorf("%q", out.String())
	}
}

// brokenConsole takes nothing until it is mended.
type brokenConsole struct {
	text   strings.Builder
	broken bool
}

func (c *brokenConsole) Write(p []byte) (int, error) {
	if c.broken {
		c.broken = false
		return 0, os.ErrClosed
	}
	return c.text.Write(p)
}

// TestLogQueueCounts what was lost, though the first word of it was lost as well.
func TestLogQueueCounts(t *testing.T) {
	console := &brokenConsole{broken: true}
	q := newLogQueue(console)
	q.dropped.Store(41)
	q.Write([]byte("lost\n"))
	q.Write([]byte("shown\n"))
	q.end()
	if want := "shown\nddpbatch: 42 messages came while nobody read the console, and are lost\n"; console.text.String() != want {
		t.Errorf("got %q, want %q", console.text.String(), want)
	}
}
