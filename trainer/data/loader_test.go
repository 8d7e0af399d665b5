package data

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// check checks that the loader gives the batches that Fill gives for rows. It takes at most most batches.
func (l *Loader) check(t rapid.TB, d Dataset, rows []int, batch, most int) {
	t.Helper()
	for chunk := range slices.Chunk(rows, batch) {
		if most == 0 {
			return
		}
		most--
		var want Batch
		want.Fill(d, chunk)
		got := l.Next()
		if got == nil || got.Rows != want.Rows || !slices.Equal(got.X, want.X) || !slices.Equal(got.Y, want.Y) ||
			!slices.Equal(got.Labels, want.Labels) {
			t.Fatalf("rows %v: got %+v, want %+v", chunk, got, want)
		}
	}
	if most == 0 {
		return
	}
	for range 2 {
		if got := l.Next(); got != nil {
			t.Fatalf("a batch of %d rows after the last", got.Rows)
		}
	}
}

// The loader gives the batches that Fill gives, in any sequence of epochs, also if some are abandoned early for the next.
func TestLoaderGivesWhatFillGives(t *testing.T) {
	d := mustGenerate(t, GeneratedConfig{Rows: 50, Inputs: 3, Outputs: 2})
	rapid.Check(t, func(t *rapid.T) {
		l := NewLoader(d, rapid.IntRange(1, 4).Draw(t, "depth"))
		defer l.Close()
		for range rapid.IntRange(1, 5).Draw(t, "epochs") {
			rows := rapid.SliceOfN(rapid.IntRange(0, 49), 0, 60).Draw(t, "rows")
			batch := rapid.IntRange(1, 10).Draw(t, "batch")
			given := slices.Clone(rows)
			l.Begin(given, batch)
			clear(given) // the caller may reuse the slice after Begin
			l.check(t, d, rows, batch, rapid.IntRange(0, 70).Draw(t, "batches taken"))
		}
	})
}

func TestLoaderReadsAhead(t *testing.T) {
	d := &counted{Dataset: mustGenerate(t, GeneratedConfig{Rows: 10, Inputs: 1, Outputs: 1}), reads: make(chan int, 10)}
	l := NewLoader(d, 2)
	defer l.Close()
	l.Begin([]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 1)
	// The loader reads two batches ahead, and a third one, since the caller does not hold one yet.
	for want := range 3 {
		if got := <-d.reads; got != want {
			t.Fatalf("row %d is read, want %d", got, want)
		}
	}
	b := l.Next()
	l.Next() // gives b back
	if got := <-d.reads; got != 3 {
		t.Errorf("row %d is read, want 3", got)
	}
	var want Batch
	want.Fill(d.Dataset, []int{3})
	if b.X[0] != want.X[0] {
		t.Error("row 3 did not take the memory of the batch that was given back")
	}
	if l.Close(); len(d.reads) != 0 {
		t.Errorf("row %d is read while all batches are in use", <-d.reads)
	}
}

// counted sends the number of every row that is read to reads.
type counted struct {
	Dataset
	reads chan int
}

func (c *counted) Read(i int, x, y []float32, labels []int) {
	c.Dataset.Read(i, x, y, labels)
	c.reads <- i
}

func TestLoaderClosesAtAnyMoment(t *testing.T) {
	d := mustGenerate(t, GeneratedConfig{Rows: 10, Inputs: 1, Outputs: 1})
	for name, use := range map[string]func(l *Loader){
		"never begun": func(*Loader) {},
		"begun":       func(l *Loader) { l.Begin([]int{1, 2, 3}, 1) },
		"in use":      func(l *Loader) { l.Begin([]int{1, 2, 3}, 1); l.Next() },
		"at the end":  func(l *Loader) { l.Begin([]int{1}, 1); l.Next(); l.Next() },
	} {
		l := NewLoader(d, 1)
		use(l)
		l.Close()
		l.Close()
		if l.Next() != nil {
			t.Errorf("%s: a closed loader has a batch", name)
		}
		if l.Begin([]int{1}, 1); l.Next() != nil {
			t.Errorf("%s: a closed loader begins", name)
		}
	}
}

func TestLoaderAllocatesNothing(t *testing.T) { // without the race detector
	d := mustGenerate(t, GeneratedConfig{Rows: 100, Inputs: 20, Outputs: 1})
	l := NewLoader(d, 3)
	defer l.Close()
	rows := make([]int, 100)
	epoch := func() {
		l.Begin(rows, 8)
		for l.Next() != nil {
		}
	}
	epoch()
	if n := testing.AllocsPerRun(100, epoch); n != 0 {
		t.Errorf("an epoch of 13 batches allocates %v times", n)
	}
}

// recovered returns the value that f panics with.
func recovered(f func()) (v any) {
	defer func() { v = recover() }()
	f()
	return nil
}

func TestLoaderPanicsOnBadNumbers(t *testing.T) {
	d := mustGenerate(t, GeneratedConfig{Rows: 1, Inputs: 1, Outputs: 1})
	l := NewLoader(d, 1)
	defer l.Close()
	for name, f := range map[string]func(){
		"a depth of 0": func() { NewLoader(d, 0) },
		"a batch of 0": func() { l.Begin([]int{0}, 0) },
	} {
		if recovered(f) == nil {
			t.Errorf("%s does not panic", name)
		}
	}
}
