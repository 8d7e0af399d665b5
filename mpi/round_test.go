package mpi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"unsafe"
)

// round is one case of a collective, as one rank plays it.
type round struct {
	ctx       context.Context
	c         *Comm
	dice, own *rand.Rand // the same on all ranks; another on each
	free      []byte     // memory of Alloc
	canonical bool       // the algorithm keeps the canonical order
	operation int        // which of those that the type has, from 1; 0: one that dice say
	size

	guards []func() error
}

// size is what the dice have said of a round.
type size struct {
	async   bool
	n, root int // elements, or those of a block; the rank at the root
	salt    int // what makes the values of one round others than those of the last
	memory  memory
}

// memory says where buffers lie.
type memory int

const (
	plain   memory = iota // in Go's
	alloced               // in that of Alloc, at any place
	mixed                 // in the one here, in the other there
	memories
)

func (r *round) draw() {
	counts := []int{0, 1, 1, 2, 10, 10, 64, 100, 1000, 10000}
	if r.c.Size() >= 8 {
		counts = counts[:len(counts)-1]
	}
	r.size = size{
		async: r.dice.IntN(2) == 1, n: counts[r.dice.IntN(len(counts))], root: r.dice.IntN(r.c.Size()), salt: r.dice.IntN(100),
		memory: memory(r.dice.IntN(int(memories))),
	}
}

// do makes the call, or has a Request made of it.
func (r *round) do(call func() error, request func() *Request) error {
	if !r.async {
		return call()
	}
	return request().Wait(r.ctx)
}

// room gives a buffer of n elements with something in it.
func room[T Number](r *round, n int) []T {
	var zero T
	width := int(unsafe.Sizeof(zero))
	length := (n + 2) * width
	var buf []byte
	shift := r.own.IntN(8) * width
	fits := shift+length <= len(r.free)
	if fits && (r.memory == alloced || r.memory == mixed && r.own.IntN(2) == 0) {
		buf = r.free[shift:][:length]
		r.free = r.free[(shift+length+15)&^15:]
	} else {
		buf = bytesOf(make([]T, n+2))
	}
	for i := range buf {
		buf[i] = 1
	}
	first, last := buf[:width], buf[len(buf)-width:]
	r.guards = append(r.guards, func() error {
		if !bytes.Equal(first, bytes.Repeat([]byte{1}, width)) || !bytes.Equal(last, bytes.Repeat([]byte{1}, width)) {
			return fmt.Errorf("the memory around a buffer of %d elements was written: % x, % x", n, first, last)
		}
		return nil
	})
	return sliceOf[T](buf[width : len(buf)-width])
}

// intact is an error if a byte around a buffer was written.
func (r *round) intact() error {
	var errs []error
	for _, guard := range r.guards {
		errs = append(errs, guard())
	}
	return errors.Join(errs...)
}

// counts draws the lengths of blocks, some of them empty, and their sum.
func (r *round) counts() (counts []int, total int) {
	counts = make([]int, r.c.Size())
	for i := range counts {
		counts[i] = r.dice.IntN(r.n+1) * r.dice.IntN(3) / 2
		total += counts[i]
	}
	return counts, total
}

// before is where block i begins.
func before(counts []int, i int) int { return sum(counts[:i]) }
