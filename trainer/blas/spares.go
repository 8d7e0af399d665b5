package blas

import "sync"

// spares keeps values that calls use by turns: as many as there were callers at a time. The zero value has none yet. Unlike sync.Pool it
// loses nothing to the garbage collector, so that a Library allocates nothing in steady state.
type spares[T any] struct {
	mu   sync.Mutex
	free []*T
}

// take returns a value that nobody else uses until it is put back.
func (s *spares[T]) take() *T {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.free) == 0 {
		return new(T)
	}
	last := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	return last
}

func (s *spares[T]) put(v *T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, v)
}
