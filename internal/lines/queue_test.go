package lines

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
)

// TestQueueNeverWaits writes far more than a pipe holds, while the pipe is not read.
func TestQueueNeverWaits(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	q := NewQueue(w)
	line := []byte(strings.Repeat("x", 1<<10) + "\n")
	written := make(chan struct{})
	go func() {
		defer close(written)
		for range 10 * queueLength {
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
	// once the pipe is read again, the number of lost messages is shown
	text := make(chan string)
	go func() {
		data, _ := io.ReadAll(r)
		text <- string(data)
	}()
	q.Write([]byte("at last\n"))
	q.End()
	<-q.done
	w.Close()
	if got := <-text; !strings.Contains(got, "messages lost: nobody read the console") {
		t.Errorf("%d bytes were read, and no word of those that were lost", len(got))
	}
}

// TestQueueShowsAllInOrder: what is queued at the end is shown in order.
func TestQueueShowsAllInOrder(t *testing.T) {
	var out bytes.Buffer
	q := NewQueue(&out)
	var want strings.Builder
	for i := range 100 {
		line := strings.Repeat("y", i) + "\n"
		want.WriteString(line)
		q.Write([]byte(line))
	}
	q.End()
	<-q.done
	if out.String() != want.String() {
		t.Errorf("%q", out.String())
	}
}

// brokenConsole fails the first Write.
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

// TestQueueCountsWhatIsLost: lost messages are counted even if the first report of them was lost as well.
func TestQueueCountsWhatIsLost(t *testing.T) {
	console := &brokenConsole{broken: true}
	q := NewQueue(console)
	q.dropped.Store(41)
	q.Write([]byte("lost\n"))
	q.Write([]byte("shown\n"))
	q.End()
	if want := "shown\nddpbatch: 42 messages lost: nobody read the console\n"; console.text.String() != want {
		t.Errorf("got %q, want %q", console.text.String(), want)
	}
}
