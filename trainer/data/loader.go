package data

import "sync"

// Loader reads batches of a data set in the background, ahead of training. Only one goroutine at a time may call its
// methods.
//
// Next, Begin and Close wait for a Read that is in progress. A Read that panics ends the process.
//
// A loader owns depth+1 batches and reuses their memory: it does not allocate once it has seen the largest batches
// and the longest epoch.
type Loader struct {
	d       Dataset
	begin   chan epochRows // received by the goroutine, which then stops reading the epoch before
	begun   chan struct{}  // reply: the rows have been copied
	free    chan *loaded   // to be filled
	full    chan *loaded   // in the order of the epoch; has room for all
	current *loaded        // the batch that Next returned
	left    int            // number of batches that Next has not returned yet
	epoch   uint64         // counts calls of Begin

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
	epoch uint64 // the epoch that it was read for
}

// NewLoader returns a loader that reads up to depth batches ahead, at least 1. Close ends its goroutine.
func NewLoader(d Dataset, depth int) *Loader {
	if depth < 1 {
		panic("data: the depth of a loader must be at least 1")
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

// Begin starts to read the given rows, batch rows at a time; the last batch may have fewer. It copies rows. The rest
// of rows that were begun before is discarded.
func (l *Loader) Begin(rows []int, batch int) {
	if batch < 1 {
		panic("data: a batch must have at least 1 row")
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

// Next returns the next batch, which is valid until the next call of Next or Begin. At the end, and after Close, it
// returns nil.
func (l *Loader) Next() *Batch {
	l.release()
	for l.left > 0 {
		select {
		case b := <-l.full:
			if b.epoch != l.epoch { // discarded by Begin
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

// Close discards what is left and waits until the loader's goroutine has ended. It may be called again.
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
