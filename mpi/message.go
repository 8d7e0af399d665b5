package mpi

import (
	"context"
	"errors"
	"fmt"

	"ddpbatch/mpi/internal/element"
	"ddpbatch/mpi/internal/engine"
	"ddpbatch/mpi/internal/tick"
)

// AnySource is a source for receives: any rank.
const AnySource = engine.Any

// Status describes a message that was received.
type Status struct {
	Source int // the rank that sent it
	Count  int // elements
}

// message is a send or a receive under way.
type message struct {
	core   *core
	label  engine.Call
	op     engine.Op
	wrong  error
	number uint64 // in the recorder
	width  int    // bytes of an element
}

// Send sends buf to rank to. It returns when the caller may use buf again, which can be before the receiver has the message. Messages from
// one rank to another with the same tag arrive in the order in which they were sent.
func Send[T Number](ctx context.Context, c *Comm, buf []T, to, tag int) error {
	m := c.core.world.message()
	defer c.core.world.recycle(m)
	send(m, c, buf, to, tag)
	return m.wait(ctx)
}

// ISend is the non-blocking form of Send. buf belongs to the Request until it is done. A rank stores up to 1 GiB of messages that have
// arrived before it receives them; further messages from the same rank wait until it has received some.
func ISend[T Number](c *Comm, buf []T, to, tag int) *Request {
	m := new(message)
	send(m, c, buf, to, tag)
	return m.request()
}

// Recv receives the next message with the tag from rank from, or from AnySource, into buf. If the message has elements of another type than
// T, or more elements than buf, the Comm is broken.
func Recv[T Number](ctx context.Context, c *Comm, buf []T, from, tag int) (Status, error) {
	m := c.core.world.message()
	defer c.core.world.recycle(m)
	receive(m, c, buf, from, tag)
	if err := m.wait(ctx); err != nil {
		return Status{}, err
	}
	return m.status(), nil
}

// IRecv is the non-blocking form of Recv. buf belongs to the Request until it is done. After that, Request.Status describes the message.
func IRecv[T Number](c *Comm, buf []T, from, tag int) *Request {
	m := new(message)
	receive(m, c, buf, from, tag)
	return m.request()
}

// request makes the message proceed without further calls.
func (m *message) request() *Request {
	if m.wrong == nil {
		m.core.group.Pursue(&m.op)
	}
	return &Request{message: m}
}

func send[T Number](m *message, c *Comm, buf []T, to, tag int) {
	begin[T](m, c, len(buf), tag)
	m.checkPeer(to)
	if m.wrong == nil {
		m.core.group.SendMessage(&m.op, to, m.label, bytesOf(buf))
	}
}

func receive[T Number](m *message, c *Comm, buf []T, from, tag int) {
	begin[T](m, c, len(buf), tag)
	if from != AnySource {
		m.checkPeer(from)
	}
	if m.wrong == nil {
		m.core.group.RecvMessage(&m.op, from, m.label, bytesOf(buf))
	}
}

// begin fills in what sends and receives have in common.
func begin[T Number](m *message, c *Comm, count, tag int) {
	data := element.TypeOf[T]()
	m.core, m.width, m.wrong = c.core, data.Size(), nil
	m.label = engine.Call{Collective: uint8(messageCall), Element: uint8(data), Count: uint64(count), Seq: uint64(tag)}
	m.number = c.core.world.recorder.begin(&m.label, "", tick.Now())
	switch {
	case tag < 0:
		m.wrong = fmt.Errorf("the tag must not be negative, got %d", tag)
	case c.core.group == nil:
		m.wrong = errors.New("this group has only one rank")
	default:
		m.wrong = c.Err()
	}
}

func (m *message) checkPeer(rank int) {
	if m.wrong != nil {
		return
	}
	switch size := m.core.group.Size(); {
	case rank < 0 || rank >= size:
		m.wrong = fmt.Errorf("rank %d does not exist: ranks are 0 to %d", rank, size-1)
	case rank == m.core.group.Rank():
		m.wrong = fmt.Errorf("rank %d is this rank: a rank cannot send messages to itself", rank)
	}
}

// wait returns when the message has been received, or sent. If ctx ends first, the Comm is broken.
func (m *message) wait(ctx context.Context) error {
	if m.wrong != nil {
		m.core.world.recorder.end(m.number, m.wrong, tick.Now())
		return fmt.Errorf("%s: %w", describe(m.label), m.wrong)
	}
	err := m.core.group.Wait(ctx, &m.op)
	if err != nil {
		err = m.core.fail(m.label, err)
	}
	m.core.world.recorder.end(m.number, err, tick.Now())
	if err != nil {
		m.core.world.writeFlight()
	}
	return err
}

func (m *message) isDone() bool {
	if m.wrong != nil {
		return true
	}
	m.core.group.Poll(&m.op)
	return m.op.Done()
}

func (m *message) status() Status {
	source, size := m.core.group.Source(&m.op)
	return Status{Source: source, Count: size / m.width}
}

// message returns a message to fill in, an old one if there is one.
func (w *world) message() *message {
	if m, ok := w.messages.Get().(*message); ok {
		return m
	}
	return new(message)
}

// recycle keeps a message that is done, to be used again.
func (w *world) recycle(m *message) { w.messages.Put(m) }
