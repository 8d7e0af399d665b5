package transport

import (
	"errors"
	"fmt"
	"time"
)

// Abort implements Mesh.
func (m *TCP) Abort(err error) { m.breakDown(err, err.Error()) }

// fail breaks the mesh with an error of this rank's current call, and returns
// the first failure.
func (m *TCP) fail(err error) error {
	text := err.Error()
	if !errors.Is(err, ErrMismatch) { // that one shows the call
		text = m.describe(m.current()) + ": " + text
	}
	return m.breakDown(err, text)
}

// breakDown breaks the mesh with err, unless it is broken already, tells the
// other ranks in the words of text, and returns the first failure.
func (m *TCP) breakDown(err error, text string) error {
	m.mu.Lock()
	first := m.err == nil
	if first {
		m.err = err
	}
	m.mu.Unlock()
	if !first {
		return m.cause()
	}
	frame := newAbort(m.rank, err, text).encode()
	for _, p := range m.peers {
		if p != nil {
			p.stop(frame)
		}
	}
	close(m.failed)
	return err
}

// failWrite fails over an error of writing to p. That error says only that the connection is
// gone; the reader is about to learn why.
func (m *TCP) failWrite(p *peer, err error) error {
	patience := time.NewTimer(lastWords)
	defer patience.Stop()
	select {
	case <-m.failed:
		return m.cause()
	case <-p.gone:
		return m.fail(p.left())
	case <-patience.C:
		return m.fail(&PeerError{Rank: p.rank, Err: fmt.Errorf("%w: %w", ErrLost, err)})
	}
}

// cause is the first failure. It waits until the other ranks are told: the caller may
// end the process as soon as it knows.
func (m *TCP) cause() error {
	<-m.failed
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// mismatch words a frame that is not of this rank's call. A frame of an earlier call is set
// against what this rank called then. Callers hold mu.
func (m *TCP) mismatch(a arrival) error {
	here := m.call
	if past := m.past[a.call.Seq%pastCalls]; past.Seq == a.call.Seq && past != a.call {
		here = past
	}
	return &MismatchError{Here: m.rank, There: a.from, HereCall: m.describe(here), ThereCall: m.describe(a.call)}
}

// hasLeft tells whether the rank has said goodbye.
func (p *peer) hasLeft() bool {
	select {
	case <-p.gone:
		return true
	default:
		return false
	}
}

// left is the error of needing a rank that has said goodbye.
func (p *peer) left() error {
	return &PeerError{Rank: p.rank, Err: fmt.Errorf("%w after call #%d", ErrLeft, p.last.Load())}
}
