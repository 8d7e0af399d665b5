package distributed

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// errDead is what the members of a group get once one of them has died.
var errDead = errors.New("a rank has died")

// meeting is a Group of goroutines. Once a member's context ends inside a collective, or it dies, all get errors, as from a communicator that is aborted.
type meeting struct {
	up, down []chan []byte
	dead     chan struct{}
	die      sync.Once
	// fault, if not nil, is asked before the k-th collective of a rank, counted from 1; its error kills the rank.
	fault func(rank, k int) error
}

func newMeeting(size int) *meeting {
	m := &meeting{dead: make(chan struct{})}
	for range size {
		m.up, m.down = append(m.up, make(chan []byte)), append(m.down, make(chan []byte))
	}
	return m
}

// NewMeeting, Member and Die are for the hard tests, which see the package from outside.
func NewMeeting(size int) *meeting       { return newMeeting(size) }
func (m *meeting) Member(rank int) Group { return m.member(rank) }
func (m *meeting) Die()                  { m.kill() }

func (m *meeting) kill() { m.die.Do(func() { close(m.dead) }) }

type member struct {
	*meeting
	rank  int
	calls int
}

var _ Group = (*member)(nil)

func (m *meeting) member(rank int) *member { return &member{meeting: m, rank: rank} }

func (m *member) Rank() int { return m.rank }
func (m *member) Size() int { return len(m.up) }

func (m *member) enter() error {
	m.calls++
	if m.fault == nil {
		return nil
	}
	err := m.fault(m.rank, m.calls)
	if err != nil {
		m.kill()
	}
	return err
}

func (m *member) send(ctx context.Context, to chan []byte, payload []byte) error {
	select {
	case to <- bytes.Clone(payload):
		return nil
	case <-m.dead:
		return errDead
	case <-ctx.Done():
		m.kill()
		return context.Cause(ctx)
	}
}

func (m *member) receive(ctx context.Context, from chan []byte) ([]byte, error) {
	select {
	case payload := <-from:
		return payload, nil
	case <-m.dead:
		return nil, errDead
	case <-ctx.Done():
		m.kill()
		return nil, context.Cause(ctx)
	}
}

func (m *member) Gather(ctx context.Context, payload []byte) ([][]byte, error) {
	if err := m.enter(); err != nil {
		return nil, err
	}
	if m.rank != 0 {
		return nil, m.send(ctx, m.up[m.rank], payload)
	}
	all := [][]byte{bytes.Clone(payload)}
	for _, from := range m.up[1:] {
		got, err := m.receive(ctx, from)
		if err != nil {
			return nil, err
		}
		all = append(all, got)
	}
	return all, nil
}

func (m *member) Broadcast(ctx context.Context, payload []byte) ([]byte, error) {
	if err := m.enter(); err != nil {
		return nil, err
	}
	if m.rank != 0 {
		return m.receive(ctx, m.down[m.rank])
	}
	for _, to := range m.down[1:] {
		if err := m.send(ctx, to, payload); err != nil {
			return nil, err
		}
	}
	return bytes.Clone(payload), nil
}
