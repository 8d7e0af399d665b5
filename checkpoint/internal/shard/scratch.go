package shard

import (
	"sync"

	"ddpbatch/checkpoint/internal/chunk"
)

// scratch is what one goroutine needs to read chunks. What is not needed is not made.
type scratch struct {
	dec        *chunk.Decoder
	block      []byte   // the stored bytes of a run
	raw        []byte   // a chunk of which only a part is wanted, or nothing
	difference []byte   // the base's chunk
	base       *scratch // with which that is read
}

func (s *scratch) decoder() (dec *chunk.Decoder, err error) {
	if s.dec == nil {
		s.dec, err = chunk.NewDecoder()
	}
	return s.dec, err
}

func (s *scratch) close() {
	if s.dec != nil {
		s.dec.Close()
	}
	if s.base != nil {
		s.base.close()
	}
}

// grow is the first n bytes of a buffer, which is made anew where it is too short.
func grow(buf *[]byte, n int) []byte {
	if cap(*buf) < n {
		*buf = make([]byte, n)
	}
	return (*buf)[:n]
}

// scratches keeps those that nobody uses now.
type scratches struct {
	mu   sync.Mutex
	idle []*scratch
}

func (p *scratches) get() *scratch {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.idle)
	if n == 0 {
		return &scratch{}
	}
	s := p.idle[n-1]
	p.idle = p.idle[:n-1]
	return s
}

func (p *scratches) put(s *scratch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, s)
}

func (p *scratches) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.idle {
		s.close()
	}
	p.idle = nil
}
