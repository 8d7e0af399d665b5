package output

import (
	"bytes"
	"sync"
)

const maxTail = 16 << 10 // bytes

// tail keeps the last bytes of a stream in a ring. It is safe for concurrent use.
type tail struct {
	mu   sync.Mutex
	ring []byte // grows up to maxTail
	next int    // where the next byte goes, once the ring is full
}

func (t *tail) add(p []byte) {
	p = p[max(0, len(p)-maxTail):]
	t.mu.Lock()
	defer t.mu.Unlock()
	room := min(maxTail-len(t.ring), len(p))
	t.ring = append(t.ring, p[:room]...)
	for p = p[room:]; len(p) > 0; {
		n := copy(t.ring[t.next:], p)
		p = p[n:]
		t.next = (t.next + n) % maxTail
	}
}

func (t *tail) lines(n int) []string {
	t.mu.Lock()
	text := make([]byte, 0, len(t.ring))
	text = append(text, t.ring[t.next:]...)
	text = append(text, t.ring[:t.next]...)
	t.mu.Unlock()
	if len(text) == 0 || n <= 0 {
		return nil
	}
	all := bytes.Split(bytes.TrimSuffix(text, []byte{'\n'}), []byte{'\n'})
	if len(text) == maxTail && len(all) > 1 {
		all = all[1:] // its beginning is gone
	}
	all = all[max(0, len(all)-n):]
	lines := make([]string, len(all))
	for i, line := range all {
		lines[i] = string(line)
	}
	return lines
}
