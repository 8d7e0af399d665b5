package mpi

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"ddpbatch/mpi/internal/element"
	"ddpbatch/mpi/internal/engine"
	"ddpbatch/mpi/internal/model"
)

// prober times messages of each of model.Lengths between rank 0 and a partner. It times exchanges, which both ranks begin at the same time,
// and messages to the partner, which the partner answers with an empty message. Rank 0 announces which length comes next. The first byte
// of each message says whether it is the last one of its kind.
//
// The longest of model.Lengths stands for data that is not in a core's caches. It is timed with pieces of a long buffer, one after another.
type prober struct {
	k                   *core
	partner             int // the other rank
	send, receive       engine.Op
	memory              []byte // one half to send, and one to receive in
	mapped              bool   // memory does not belong to Go's heap
	piece               int    // the piece of each half that is used next
	touched             bool   // all pages of memory have been written
	begun               time.Time
	exchanges, messages model.Samples
}

const (
	// Each length has a few rounds, and then more until roundsTime or mostRounds. After linkTime, which a slow link or one whose cores are
	// shared reaches, each length has only two rounds, and the longest has none. So timing a link takes at most about twice linkTime and
	// nine times as long as 512 KiB take, or thirty of the link's delays.
	mostRounds = 40
	roundsTime = 200 * time.Microsecond
	linkTime   = 30 * time.Millisecond

	pieceBytes = 2 << 20
	pieces     = 8
	halfBytes  = pieces * pieceBytes

	// wholeMessage is how many times as long the longest exchange takes over TCP as its pieces do, because the pieces fit in the kernels'
	// buffers. Measured: 1.2 to 2.3. With this value, the most predictions are right.
	wholeMessage = 1.3

	longest   = len(model.Lengths) - 1
	lastOfAll = 255 // announces the end instead of a length
)

// lengthOf returns the length of the messages with which the i'th length is timed.
func lengthOf(i int) int { return min(model.Lengths[i], pieceBytes) }

// fewRounds are the smallest numbers of rounds of each length. They are large enough that the first rounds, which are slower, do not count.
var fewRounds = [len(model.Lengths)]int{16, 16, 8, 8, 3}

// mmapFunc is unix.Mmap, or a test's replacement for it.
type mmapFunc func(fd int, offset int64, length, prot, flags int) ([]byte, error)

// newProber maps memory of large pages if the system has them: on some virtual machines, a page fault takes 20 microseconds. If mmap fails,
// for example at a limit of memory, the prober uses Go's memory, with one piece for each half. The longest messages may then seem faster
// than they are, because they stay in a cache. That is better than failing.
func newProber(k *core, mmap mmapFunc) *prober {
	memory, err := mmap(-1, 0, 2*halfBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		k.world.log.Debug("cannot map memory to time messages with; using less memory", "err", err)
		return &prober{k: k, memory: make([]byte, 2*pieceBytes)}
	}
	_ = unix.Madvise(memory, unix.MADV_HUGEPAGE) // it works without large pages, too
	return &prober{k: k, memory: memory, mapped: true}
}

// close releases the memory. No message may be under way.
func (p *prober) close() {
	if p.mapped {
		_ = unix.Munmap(p.memory)
	}
}

// timeLink measures the costs of messages between rank 0 and its partner. Rank 0 gets the result in costs.
func (p *prober) timeLink(ctx context.Context, partner int, costs *model.Costs) error {
	if p.k.group.Rank() == 0 {
		p.partner = partner
		return p.ask(ctx, costs)
	}
	p.partner = 0
	return p.answer(ctx)
}

// ask is rank 0's part. It begins with messages that do not count, because a link that uses its memory for the first time is slower.
func (p *prober) ask(ctx context.Context, costs *model.Costs) error {
	p.begun = time.Now()
	if err := p.askFor(ctx, longest-1, 1); err != nil {
		return err
	}
	p.begun, p.exchanges, p.messages = time.Now(), model.Samples{}, model.Samples{}
	for i, few := range fewRounds {
		if i == longest && time.Since(p.begun) > linkTime {
			break
		}
		if err := p.askFor(ctx, i, few); err != nil {
			return err
		}
	}
	costs.Exchange, costs.Message = model.Fit(&p.exchanges), model.Fit(&p.messages)
	return p.move(ctx, []byte{lastOfAll}, nil)
}

// askFor times few rounds or more of both kinds for the i'th length.
func (p *prober) askFor(ctx context.Context, i, few int) error {
	if err := p.move(ctx, []byte{byte(i)}, nil); err != nil {
		return err
	}
	p.touch(i)
	if err := p.rounds(i, few, &p.exchanges[i], func(out, in []byte) error { return p.move(ctx, out, in) }); err != nil {
		return err
	}
	return p.rounds(i, few, &p.messages[i], func(out, in []byte) error { return p.move(ctx, out, in[:0]) })
}

// rounds times few rounds or more of one kind.
//
// A sample is the mean of two consecutive rounds, because nothing makes both ranks begin an exchange at the same moment. If one of them
// begins later by some time, the round takes longer by that time, and the next round takes less by as much. For the longest length, where
// that difference matters little, a sample is one round.
func (p *prober) rounds(i, few int, to *[]float64, round func(out, in []byte) error) error {
	begun, before := time.Now(), time.Duration(0)
	for n := 1; ; n++ {
		last := n == mostRounds || n >= few && time.Since(begun) > roundsTime || n >= 2 && time.Since(p.begun) > linkTime
		out, in := p.buffers(i)
		out[0] = 0
		if last {
			out[0] = 1
		}
		start := time.Now()
		if err := round(out, in); err != nil {
			return err
		}
		took := time.Since(start)
		switch {
		case i == longest:
			*to = append(*to, scaled(took, i))
		case n > 1:
			*to = append(*to, scaled((before+took)/2, i))
		}
		before = took
		if last {
			return nil
		}
	}
}

// answer is the partner's part.
func (p *prober) answer(ctx context.Context) error {
	for {
		var head [1]byte
		if err := p.move(ctx, nil, head[:]); err != nil || head[0] == lastOfAll {
			return err
		}
		i := int(head[0])
		if i >= len(model.Lengths) {
			return fmt.Errorf("rank 0 sent length number %d, but there are only %d lengths", i, len(model.Lengths))
		}
		p.touch(i)
		for more := true; more; {
			out, in := p.buffers(i)
			if err := p.move(ctx, out, in); err != nil {
				return err
			}
			more = in[0] == 0
		}
		for more := true; more; {
			out, in := p.buffers(i)
			if err := p.move(ctx, nil, in); err != nil {
				return err
			}
			if err := p.move(ctx, out[:0], nil); err != nil {
				return err
			}
			more = in[0] == 0
		}
	}
}

// touch writes to all pages of the memory before the longest length is timed.
func (p *prober) touch(i int) {
	if i != longest || p.touched {
		return
	}
	const page = 4 << 10
	for at := 0; at < len(p.memory); at += page {
		p.memory[at] = 0
	}
	p.touched = true
}

// buffers returns the buffers to send a message of the i'th length from, and to receive it in. They are always the same ones, except for
// the longest length, which uses the next pieces.
func (p *prober) buffers(i int) (out, in []byte) {
	n, half, from := lengthOf(i), len(p.memory)/2, 0
	if i == longest {
		from = p.piece * pieceBytes
		p.piece = (p.piece + 1) % (half / pieceBytes)
	}
	return p.memory[from:][:n], p.memory[half+from:][:n]
}

// scaled returns the time of the i'th length in seconds, if the length with which it is timed took d.
func scaled(d time.Duration, i int) float64 {
	return d.Seconds() * float64(model.Lengths[i]) / float64(lengthOf(i))
}

// move sends out to the partner and receives in, at the same time. It leaves out a nil buffer. Both have ended if the error is nil.
func (p *prober) move(ctx context.Context, out, in []byte) error {
	label := engine.Call{Collective: uint8(messageCall)}
	if in != nil {
		p.k.group.RecvMessage(&p.receive, p.partner, label, in)
	}
	if out != nil {
		p.k.group.SendMessage(&p.send, p.partner, label, out)
	}
	if in != nil { // first, because it takes longest
		if err := p.k.group.Wait(ctx, &p.receive); err != nil {
			return err
		}
	}
	if out != nil {
		return p.k.group.Wait(ctx, &p.send)
	}
	return nil
}

// timeReductions measures the time to sum float32s.
func (p *prober) timeReductions() model.Times {
	kernel, err := element.KernelOf(element.Float32, element.Sum)
	if err != nil {
		return model.Times{} // reductions then seem to cost nothing
	}
	var samples model.Samples
	for i, few := range fewRounds {
		p.touch(i)
		for range few {
			out, in := p.buffers(i)
			start := time.Now()
			kernel(in, in, out)
			samples[i] = append(samples[i], scaled(time.Since(start), i))
		}
	}
	return model.Fit(&samples)
}
