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

// prober times messages between rank 0 and a partner, of each of model.Lengths: exchanges, which both ranks begin at once, and messages to
// the partner that get an empty answer. Rank 0 says which length comes, and in the first byte of each message whether there are more of its
// kind.
//
// The longest of model.Lengths stands for what is in no cache of a core. It is timed with pieces of that length, one after another.
type prober struct {
	k                   *core
	partner             int // the other one
	send, receive       engine.Op
	memory              []byte // one half to send, and one to receive in
	mapped              bool   // memory is not Go's
	piece               int    // of each half, that is used next
	touched             bool   // all of it is there
	begun               time.Time
	exchanges, messages model.Samples
}

const (
	// Each length has a few rounds, and then more until roundsTime or mostRounds. A link that is slow, or whose cores others use, may take
	// linkTime. From then on each length has two rounds, and the longest has none. So timing a link takes at most about twice linkTime and
	// nine times as long as 512 KiB take, or thirty of the link's delays.
	mostRounds = 40
	roundsTime = 200 * time.Microsecond
	linkTime   = 30 * time.Millisecond

	pieceBytes = 2 << 20
	pieces     = 8
	halfBytes  = pieces * pieceBytes

	// wholeMessage is how many times as long as its pieces the longest exchange takes over TCP: the pieces fit in the kernels' buffers.
	// Measured: 1.2 to 2.3. This is what makes the most predictions right.
	wholeMessage = 1.3

	longest   = len(model.Lengths) - 1
	lastOfAll = 255 // in place of the length that comes
)

// lengthOf is the length of the messages that the i'th length is timed with.
func lengthOf(i int) int { return min(model.Lengths[i], pieceBytes) }

// fewRounds are the least of each length: so many that those in which something is used for the first time do not count.
var fewRounds = [len(model.Lengths)]int{16, 16, 8, 8, 3}

// mmapFunc is unix.Mmap, or what a test has in its place.
type mmapFunc func(fd int, offset int64, length, prot, flags int) ([]byte, error)

// newProber maps memory of large pages, where the system has them: there are virtual machines that take 20 microseconds to find a page.
// Where the system refuses, as there is a limit, the prober takes one piece of Go's memory for each half. The longest messages may then
// seem faster than they are, as they stay in a cache. That is better than failing.
func newProber(k *core, mmap mmapFunc) *prober {
	memory, err := mmap(-1, 0, 2*halfBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		k.world.log.Debug("messages are timed in little memory", "err", err)
		return &prober{k: k, memory: make([]byte, 2*pieceBytes)}
	}
	_ = unix.Madvise(memory, unix.MADV_HUGEPAGE) // it also goes without
	return &prober{k: k, memory: memory, mapped: true}
}

// close gives the memory back. No message is under way.
func (p *prober) close() {
	if p.mapped {
		_ = unix.Munmap(p.memory)
	}
}

// timeLink finds what messages between rank 0 and its partner take, on rank 0.
func (p *prober) timeLink(ctx context.Context, partner int, costs *model.Costs) error {
	if p.k.group.Rank() == 0 {
		p.partner = partner
		return p.ask(ctx, costs)
	}
	p.partner = 0
	return p.answer(ctx)
}

// ask is rank 0's part. It begins with messages that do not count, as a link that uses its memory for the first time takes longer.
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

// askFor times few rounds or more of both kinds of the i'th length.
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
// A sample is the mean of two rounds in a row. Nothing makes both ranks begin an exchange at the same moment: where one of them begins
// later by some time, a round takes longer by that, and the next one takes less by as much. Of the longest, beside which that is little, a
// sample is one round.
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
			return fmt.Errorf("rank 0 wants to time length number %d, of %d", i, len(model.Lengths))
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

// touch has the memory for the longest length be there before it is timed.
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

// buffers are what a message of the i'th length is sent from, and received in: always the same, or for the longest the next pieces.
func (p *prober) buffers(i int) (out, in []byte) {
	n, half, from := lengthOf(i), len(p.memory)/2, 0
	if i == longest {
		from = p.piece * pieceBytes
		p.piece = (p.piece + 1) % (half / pieceBytes)
	}
	return p.memory[from:][:n], p.memory[half+from:][:n]
}

// scaled is the time in seconds of the i'th length, where that with which it is timed took d.
func scaled(d time.Duration, i int) float64 {
	return d.Seconds() * float64(model.Lengths[i]) / float64(lengthOf(i))
}

// move sends out to the partner and receives in, at once; nil: it does not. Both are over when it returns without an error.
func (p *prober) move(ctx context.Context, out, in []byte) error {
	label := engine.Call{Collective: uint8(messageCall)}
	if in != nil {
		p.k.group.RecvMessage(&p.receive, p.partner, label, in)
	}
	if out != nil {
		p.k.group.SendMessage(&p.send, p.partner, label, out)
	}
	if in != nil { // first, as it is what takes longest
		if err := p.k.group.Wait(ctx, &p.receive); err != nil {
			return err
		}
	}
	if out != nil {
		return p.k.group.Wait(ctx, &p.send)
	}
	return nil
}

// timeReductions finds what it takes to sum float32s.
func (p *prober) timeReductions() model.Times {
	kernel, err := element.KernelOf(element.Float32, element.Sum)
	if err != nil {
		return model.Times{} // they cost nothing
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
