package launch

import (
	"io"
	"sync"
)

// console is one of the agent's own streams. Both have one lock, since both may be the same
// terminal.
type console struct {
	mu *sync.Mutex
	w  io.Writer
}

func newConsoles(stdout, stderr io.Writer) (out, errs console) {
	var mu sync.Mutex
	return console{&mu, stdout}, console{&mu, stderr}
}

func (c console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.w.Write(p)
}
