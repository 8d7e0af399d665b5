package data

import "sync"

// Loader reads batches of a data set in the background, ahead of the one who trains on them. Its methods are
// for one goroutine.
//
// Next, Begin and Close wait for a Read that is under way. One that panics ends the process.
//
// A loader owns depth+1 batches, whose memory it uses again: nothing is allocated once the largest batches
// and the longest epoch were seen.
type Loader struct {
	d       Dataset
	begin   chan epochRows // taken by the goroutine, which then reads nothing of an epoch before
	begun   chan struct{}  // answers: the rows have been copied
	free    chan *loaded   // to be filled
	full    chan *loaded   // in the order of the epoch; has room for all
	current *loaded        // what Next returned
	left    int            // batches that Next has not returned yet
	epoch   uint64         // counts Begin

	closing sync.Once
	stop    chan struct{}
	stopped chan struct{}
}

type epochRows struct {
	epoch uint64
	rows  []int
	batch int
}

type loaded struct {
	Batch
	epoch uint64 // what it was read for
}

// NewLoader returns a loader that is up to depth batches ahead, at least 1. Close ends its goroutine.
func NewLoader(d Dataset, depth int) *Loader {
	if depth < 1 {
		panic("data: a loader's depth is below 1")
	}
	l := &Loader{
		d: d, begin: make(chan epochRows), begun: make(chan struct{}),
		free: make(chan *loaded, depth+1), full: make(chan *loaded, depth+1),
		stop: make(chan struct{}), stopped: make(chan struct{}),
	}
	for range depth + 1 {
		l.free <- new(loaded)
	}
	go l.run()
	return l
}

// Begin starts to read the given rows, batch at a time, the last time what is left. The rows are copied. What is left
// of rows that were begun before is given up.
func (l *Loader) Begin(rows []int, batch int) {
	if batch < 1 {
		panic("data: a batch has fewer rows than 1")
	}
	l.release()
	l.epoch++
	select {
	case l.begin <- epochRows{l.epoch, rows, batch}:
		<-l.begun
		l.left = (len(rows) + batch - 1) / batch
	case <-l.stopped:
		l.left = 0
	}
}

// Next returns the next batch, valid until the next call of Next or Begin. At the end, and after Close, it
// returns nil.
func (l *Loader) Next() *Batch {
	l.release()
	for l.left > 0 {
		select {
		case b := <-l.full:
			if b.epoch != l.epoch { // given up
				l.free <- b
				continue
			}
			l.left--
			l.current = b
			return &b.Batch
		case <-l.stopped:
			l.left = 0
		}
	}
	return nil
}

func (l *Loader) release() {
	if l.current != nil {
		l.free <- l.current
		l.current = nil
	}
}

// Close gives up what is left and waits until the loader's goroutine has ended. It may be called again.
func (l *Loader) Close() {
	l.closing.Do(func() { close(l.stop) })
	<-l.stopped
	l.left = 0
}

// run is the loader's goroutine.
func (l *Loader) run() {
	defer close(l.stopped)
	var now epochRows
	var rows []int // its memory is kept
	start := func(e epochRows) {
		rows = append(rows[:0], e.rows...)
		now = epochRows{e.epoch, rows, e.batch}
		l.begun <- struct{}{}
	}
	for {
		free := l.free
		if len(now.rows) == 0 {
			free = nil // wait for the next epoch
		}
		select {
		case <-l.stop:
			return
		case e := <-l.begin:
			start(e)
		case b := <-free:
			n := min(now.batch, len(now.rows))
			b.epoch = now.epoch
			b.Fill(l.d, now.rows[:n])
			now.rows = now.rows[n:]
			l.full <- b
		}
	}
}
