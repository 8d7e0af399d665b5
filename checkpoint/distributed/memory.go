package distributed

import (
	"log/slog"
	"os"
	"runtime"

	"ddpbatch/checkpoint"
)

// The memory that encoding takes: each worker has an encoder of just under 3 MiB and two batches of 1 MiB, and one more batch is being
// written.
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

// Encoders returns how many of o.Workers may encode within o.MaxMemory, so that a caller can reduce Workers before New, and
// the bytes that a single one takes. n is 0 if not even one may. o.Workers must not be 0.
// New itself gives up copies of the state if they do not fit, but does not reduce the workers.
func (o Options) Encoders() (n int, least int64) {
	n, least = o.Workers, LeastMemory(o.Peers != nil)
	if o.MaxMemory > 0 {
		n = int(max(0, min(int64(n), (o.MaxMemory-least+encodeEach)/encodeEach)))
	}
	return n, least
}

// LeastMemory returns how many bytes a single encoder takes, with or without peers that exchange shards.
func LeastMemory(peers bool) int64 {
	least := int64(encodeOnce + encodeEach)
	if peers {
		least += 2 * messageBytes
	}
	return least
}

// mode is the part of the options that the memory allows. It is the same on all ranks.
type mode struct {
	Async  bool `json:"async"`
	Delta  int  `json:"delta"`
	Copies int  `json:"copies"` // of the state: 0, 1, or 2 with deltas

	// If the mode is less than the options: which rank has too little memory, how much it needs, and its cap.
	Rank   int   `json:"rank"`
	Needs  int64 `json:"needs"`
	Cap    int64 `json:"cap"`
	Over   bool  `json:"over"`   // the cap is too low even to encode
	Lifted bool  `json:"lifted"` // deltas are off because of the node-local tier
}

func (m mode) deltas() bool { return m.Delta > 0 }

// chooseMode runs on rank 0; loads are what each rank writes. It gives up deltas first, then the copy, and with it asynchronous saving.
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

// wanted returns how many copies of the state the mode needs.
func (m mode) wanted() int {
	switch {
	case m.deltas():
		return 2
	case m.Async:
		return 1
	}
	return 0
}

// explain logs which options are not followed.
func (m mode) explain(log *slog.Logger) {
	if m.Lifted {
		log.Warn("every checkpoint is a full one: delta has no effect with a node-local tier")
	}
	if m.Needs == 0 {
		return
	}
	if m.Over {
		log.Warn("encoding checkpoints takes more memory than allowed, even without a copy of the state: let fewer goroutines encode",
			"rank", m.Rank, "needs_bytes", m.Needs, "max_bytes", m.Cap)
		return
	}
	what := "no deltas"
	if !m.Async && m.Copies == 0 {
		what = "synchronous saving, without a copy of the state"
	}
	log.Warn("checkpoints need more memory than allowed", "instead", what, "rank", m.Rank, "needs_bytes", m.Needs, "max_bytes", m.Cap)
}

// copies holds the buffers for the state while it is written: none, one, or two if one holds the full checkpoint that deltas refer to.
type copies struct {
	live    []checkpoint.Piece   // this rank's pieces, in the memory that training changes
	buffers [][]checkpoint.Piece // the same pieces, in memory of the Saver
}

// newCopies reserves n buffers. It writes to each page, so that a machine with too little memory fails now and not at the first save.
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

// against returns pieces as a delta from the contents of a buffer.
func (c *copies) against(pieces []checkpoint.Piece, base int) []checkpoint.Piece {
	for i := range pieces {
		pieces[i].Base = c.buffers[base][i].Data
	}
	return pieces
}

// deltaSchedule decides which saves are deltas, and which of the two copies each save uses: the base stays in memory, the other copy is
// for the next save. It advances by outcomes, which all ranks learn in the same order.
type deltaSchedule struct {
	base int // the copy that holds the newest full checkpoint; -1: none
	used int // deltas since then
}

func newDeltaSchedule() deltaSchedule { return deltaSchedule{base: -1} }

// next returns which copy the next save uses, and whether it is full or a delta from the copy base.
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

// done records how a job ended. After a failed job the next one is full, because the contents of the failed one's folder are unknown.
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
