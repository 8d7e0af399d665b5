package distributed

import (
	"log/slog"
	"os"
	"runtime"

	"ddpbatch/checkpoint"
)

// What encoding keeps: each worker has an encoder of just under 3 MiB and two batches of 1 MiB, and one more batch is being written.
const (
	encodeEach = 5 << 20
	encodeOnce = 1 << 20
)

func encodeBytes(workers int) int64 {
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	return int64(workers)*encodeEach + encodeOnce
}

// Encoders is how many of o.Workers, which are not 0, may encode within o.MaxMemory, so that it can be asked for no more before New; and
// how many bytes it takes if only one does. 0: not even that one may.
// New itself gives up copies of the state where they do not fit, and not workers.
func (o Options) Encoders() (n int, least int64) {
	n, least = o.Workers, LeastMemory(o.Peers != nil)
	if o.MaxMemory > 0 {
		n = int(max(0, min(int64(n), (o.MaxMemory-least+encodeEach)/encodeEach)))
	}
	return n, least
}

// LeastMemory is how many bytes one encoder takes, beside peers that exchange shards or without.
func LeastMemory(peers bool) int64 {
	least := int64(encodeOnce + encodeEach)
	if peers {
		least += 2 * messageBytes
	}
	return least
}

// mode is what of the options the memory allows; the same on all ranks.
type mode struct {
	Async  bool `json:"async"`
	Delta  int  `json:"delta"`
	Copies int  `json:"copies"` // of the state: 0, 1, or 2 where there are deltas

	// Where it is less than was asked for: who has too little, how much that takes, and its cap.
	Rank   int   `json:"rank"`
	Needs  int64 `json:"needs"`
	Cap    int64 `json:"cap"`
	Over   bool  `json:"over"`   // it is too little even to encode
	Lifted bool  `json:"lifted"` // deltas were asked for, and there is a node-local tier
}

func (m mode) deltas() bool { return m.Delta > 0 }

// chooseMode is rank 0's; loads are what each rank writes. Deltas go first, then the copy, and with it asynchronous saving.
func chooseMode(loads []int64, all []hello) mode {
	asked := all[0].Options
	m := mode{Async: asked.Async, Delta: max(0, asked.Delta)}
	if m.Delta > 0 && asked.Local {
		m.Delta, m.Lifted = 0, true
	}
	m.Copies = m.wanted()
	for rank, h := range all {
		for m.Copies > 0 && h.MaxMemory > 0 {
			needs := int64(m.Copies)*loads[rank] + h.Encode
			if needs <= h.MaxMemory {
				break
			}
			m.Rank, m.Needs, m.Cap = rank, needs, h.MaxMemory
			if m.deltas() {
				m.Delta = 0
			} else {
				m.Async = false
			}
			m.Copies = m.wanted()
		}
		if h.MaxMemory > 0 && h.Encode > h.MaxMemory {
			m.Rank, m.Needs, m.Cap, m.Over = rank, h.Encode, h.MaxMemory, true
		}
	}
	return m
}

// wanted is how many copies of the state the mode needs.
func (m mode) wanted() int {
	switch {
	case m.deltas():
		return 2
	case m.Async:
		return 1
	}
	return 0
}

// explain logs what was asked for and is not done.
func (m mode) explain(log *slog.Logger) {
	if m.Lifted {
		log.Warn("checkpoints are all full ones: with a node-local tier there are no deltas")
	}
	if m.Needs == 0 {
		return
	}
	if m.Over {
		log.Warn("encoding checkpoints takes more memory than allowed, even without a copy of the state: have fewer goroutines encode",
			"rank", m.Rank, "needs_bytes", m.Needs, "max_bytes", m.Cap)
		return
	}
	what := "no deltas"
	if !m.Async && m.Copies == 0 {
		what = "synchronous saving, without a copy of the state"
	}
	log.Warn("checkpoints need more memory than allowed", "instead", what, "rank", m.Rank, "needs_bytes", m.Needs, "max_bytes", m.Cap)
}

// copies are the buffers that hold the state while it is written: none, one, or one more for the full checkpoint that deltas refer to.
type copies struct {
	live    []checkpoint.Piece   // this rank's pieces where training changes them
	buffers [][]checkpoint.Piece // the same pieces, in memory of our own
}

// newCopies reserves n buffers. They are touched, so that a machine with too little memory says so now and not at the first save.
func newCopies(live []checkpoint.Piece, n int) *copies {
	c := &copies{live: live}
	var size int
	for _, p := range live {
		size += len(p.Data)
	}
	for range n {
		buf := make([]byte, size)
		for i := 0; i < size; i += os.Getpagesize() {
			buf[i] = 1
		}
		pieces := make([]checkpoint.Piece, len(live))
		for i, p := range live {
			pieces[i] = p
			pieces[i].Data, buf = buf[:len(p.Data):len(p.Data)], buf[len(p.Data):]
		}
		c.buffers = append(c.buffers, pieces)
	}
	return c
}

// take copies the live state into a buffer.
func (c *copies) take(buffer int) []checkpoint.Piece {
	to := c.buffers[buffer]
	for i, p := range c.live {
		copy(to[i].Data, p.Data)
		to[i].Base = nil
	}
	return to
}

// against is pieces as a delta to what a buffer holds.
func (c *copies) against(pieces []checkpoint.Piece, base int) []checkpoint.Piece {
	for i := range pieces {
		pieces[i].Base = c.buffers[base][i].Data
	}
	return pieces
}

// deltaSchedule decides which saves are deltas, and which of the two copies is whose: the base stays in memory, the other copy is the
// one to save next. It advances by outcomes, which all ranks learn in the same order.
type deltaSchedule struct {
	base int // the copy that the newest full checkpoint was made of; -1: none
	used int // deltas since then
}

func newDeltaSchedule() deltaSchedule { return deltaSchedule{base: -1} }

// next says what the next save is: into which copy, and whether it is full or a delta to the copy base.
func (d *deltaSchedule) next(m mode) (copy, base int, full bool) {
	if m.Copies < 2 {
		return 0, -1, true
	}
	copy = 0
	if d.base == 0 {
		copy = 1
	}
	return copy, d.base, d.base < 0 || d.used >= m.Delta
}

// done takes note of how a job ended. After one that failed the next is a full one: what its folder holds is not known.
func (d *deltaSchedule) done(j *job, ok bool) {
	switch {
	case !ok:
		*d = newDeltaSchedule()
	case j.full:
		*d = deltaSchedule{base: j.copy}
	default:
		d.used++
	}
}
