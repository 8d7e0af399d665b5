package shm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/testkit"
)

// cellSize returns the size of a cell in a call with that many receivers.
func cellSize(receivers int) int { return inlineSize / receivers / lengthSize * lengthSize }

// content returns n bytes that rank from has for rank to.
func content(from, to, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(31*from + 7*to + i + i>>8)
	}
	return b
}

// uneven is a call in which rank a has lengths[a][b] bytes for rank b. An all-to-all uses all of them. The other calls use those that the
// root sends or receives.
type uneven struct {
	lengths [][]int
	root    int
	inPlace bool // the root's own block is already in its place
}

// unevenCalls make such a call as rank m. They return the buffer with the result, and what it must be.
var unevenCalls = map[string]func(m *member, u uneven) (got, want []byte, err error){
	"gather": func(m *member, u uneven) ([]byte, []byte, error) {
		in := content(m.rank, u.root, u.lengths[m.rank][u.root])
		if m.rank != u.root {
			err := m.node.GatherV(m.w, m.p, Fingerprint{1}, nil, nil, in, u.root)
			return in, content(m.rank, u.root, len(in)), err
		}
		want, at := u.received(u.root)
		out := make([]byte, len(want))
		if u.inPlace {
			in = out[at[u.root]:][:copy(out[at[u.root]:], in)]
		}
		err := m.node.GatherV(m.w, m.p, Fingerprint{1}, out, at, in, u.root)
		return out, want, err
	},
	"scatter": func(m *member, u uneven) ([]byte, []byte, error) {
		want := content(u.root, m.rank, u.lengths[u.root][m.rank])
		out := make([]byte, len(want))
		if m.rank != u.root {
			err := m.node.ScatterV(m.w, m.p, Fingerprint{1}, out, nil, nil, u.root)
			return out, want, err
		}
		in, at := u.sent(u.root)
		if u.inPlace {
			out = block(in, at, u.root)
		}
		err := m.node.ScatterV(m.w, m.p, Fingerprint{1}, out, in, at, u.root)
		return out, want, err
	},
	"all_to_all": func(m *member, u uneven) ([]byte, []byte, error) {
		in, inAt := u.sent(m.rank)
		want, outAt := u.received(m.rank)
		out := make([]byte, len(want))
		err := m.node.AllToAllV(m.w, m.p, Fingerprint{1}, out, outAt, in, inAt)
		return out, want, err
	},
}

// sent returns what a rank sends to all, and received what it receives from all.
func (u uneven) sent(rank int) (all []byte, at []int) {
	at = []int{0}
	for to, n := range u.lengths[rank] {
		all = append(all, content(rank, to, n)...)
		at = append(at, len(all))
	}
	return all, at
}

func (u uneven) received(rank int) (all []byte, at []int) {
	at = []int{0}
	for from := range u.lengths {
		all = append(all, content(from, rank, u.lengths[from][rank])...)
		at = append(at, len(all))
	}
	return all, at
}

// Blocks of every length arrive beside each other: empty, short, as long as a cell holds, one byte longer, and long.
func TestBlocksOfEveryLengthArrive(t *testing.T) {
	for name, call := range unevenCalls {
		for _, size := range []int{1, 2, 3, 4, 7} {
			t.Run(fmt.Sprintf("%s/%d_ranks", name, size), func(t *testing.T) {
				room, all := cellSize(size)-lengthSize, inlineSize-lengthSize
				some := []int{0, 1, lengthSize, room, room + 1, 0, all, all + 1, readFrom, 3*inlineSize + 5}
				members := group(t, size)
				errs := together(members, func(m *member) error {
					for step := range 2 * len(some) {
						u := uneven{root: step % size, inPlace: step%2 == 0}
						for a := range size {
							u.lengths = append(u.lengths, nil)
							for b := range size {
								u.lengths[a] = append(u.lengths[a], some[(step+3*a+b)%len(some)])
							}
						}
						m.node.readable = m.readable && step%4 > 1
						got, want, err := call(m, u)
						if err != nil || !bytes.Equal(got, want) {
							return fmt.Errorf("rank %d, %+v: %v; result right: %v", m.rank, u, err, bytes.Equal(got, want))
						}
					}
					return m.node.CatchUp(m.w)
				})
				if err := errors.Join(errs...); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// If a sender has a block of another length than its receiver expects, the receiver gets an error, whichever way either of them uses for
// it.
func TestBlockOfAnotherLengthIsAnError(t *testing.T) {
	long := inlineSize + 4
	for name, call := range unevenCalls {
		for _, readable := range []bool{false, true} {
			for _, tt := range [][2]int{{8, 12}, {8, 0}, {0, 8}, {8, long}, {long, 8}, {long, long + 1},
				{long, 3 * long}, {3 * long, long}} {
				t.Run(fmt.Sprintf("%s/%d_of_%d/readable_%v", name, tt[1], tt[0], readable), func(t *testing.T) {
					due, sent := tt[0], tt[1]
					members := group(t, 3)
					receiver, sender := 0, 2
					u := uneven{lengths: [][]int{{5, 5, 5}, {5, 5, 5}, {5, 5, 5}}}
					if name == "scatter" {
						u.root = sender
					}
					errs := together(members, func(m *member) error {
						mine := u
						mine.lengths = slices.Clone(u.lengths)
						mine.lengths[sender] = []int{due, 5, 5}
						if m.rank == sender {
							mine.lengths[sender] = []int{sent, 5, 5}
						}
						m.node.readable = readable && m.readable
						if _, _, err := call(m, mine); err != nil {
							return err
						}
						return m.node.Barrier(m.w, Fingerprint{2})
					})
					want := LengthError{Rank: sender, Due: uint64(due), Sent: uint64(sent)}
					var differ *LengthError
					if !errors.As(errs[receiver], &differ) || *differ != want {
						t.Errorf("the receiver got %v, want %v", errs[receiver], &want)
					}
					for rank, err := range errs {
						if rank != receiver && !errors.Is(err, errGroupFailed) {
							t.Errorf("rank %d got %v", rank, err)
						}
					}
				})
			}
		}
	}
}

// Data in the cells of another rank is checked before it is used.
func TestHostileCellsAreRefused(t *testing.T) {
	for name, call := range unevenCalls {
		for _, due := range []int{0, 8, inlineSize + 1} {
			for _, length := range []uint64{1 << 63, ^uint64(0), 1<<32 + 8, inlineSize, 9} {
				t.Run(fmt.Sprintf("%s/%d/%x", name, due, length), func(t *testing.T) {
					m := group(t, 2)[0]
					u := uneven{lengths: [][]int{{due, due}, {due, due}}}
					if name == "scatter" {
						u.root = 1
					}
					s := m.node.ranks[1].slots[1]
					s.fingerprint = Fingerprint{1}
					inline := m.node.ranks[1].inline[1]
					for i := 0; i < len(inline); i += lengthSize {
						binary.LittleEndian.PutUint64(inline[i:], length)
					}
					s.flag.Store(1)
					testkit.Within(t, testkit.Patience, func() {
						got, _, err := call(m, u)
						var differ *LengthError
						if !errors.As(err, &differ) || differ.Sent != length {
							t.Errorf("got %v", err)
						}
						if bytes.Contains(got, []byte{0xff, 0xff}) {
							t.Error("data was taken")
						}
					})
				})
			}
		}
	}
}

// The kernel refuses an address that a rank has made up.
func TestHostileAddressIsRefused(t *testing.T) {
	for name, call := range unevenCalls {
		t.Run(name, func(t *testing.T) {
			m := group(t, 2)[0]
			if !m.node.readable {
				t.Skip("the kernel does not let a process read another's memory here")
			}
			const due = readFrom
			u := uneven{lengths: [][]int{{5, due}, {due, 5}}}
			if name == "scatter" {
				u.root = 1
			}
			s := m.node.ranks[1].slots[1]
			s.fingerprint = Fingerprint{1}
			inline := m.node.ranks[1].inline[1]
			for i := 0; i+lengthSize < len(inline); i += 2 * lengthSize { // in every cell
				binary.LittleEndian.PutUint64(inline[i:], due)
				binary.LittleEndian.PutUint64(inline[i+lengthSize:], 4096) // not mapped
			}
			s.flag.Store(1)
			testkit.Within(t, testkit.Patience, func() {
				if _, _, err := call(m, u); !errors.Is(err, unix.EFAULT) {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

// A rank whose block another rank reads does not return before it has been read: after that, the block is the caller's again.
func TestBlockIsReadBeforeItsSenderReturns(t *testing.T) {
	members := group(t, 2)
	if !members[0].node.readable {
		t.Skip("the kernel does not let a process read another's memory here")
	}
	block := content(1, 0, readFrom)
	gather := func(m *member, w Waiter, out []byte) error {
		return m.node.GatherV(w, m.p, Fingerprint{1}, out, []int{0, 0, readFrom}, [][]byte{nil, block}[m.rank], 0)
	}
	late := &lateWaiter{testWaiter: members[0].w, entered: make(chan struct{}), goOn: make(chan struct{})}
	out, root := make([]byte, readFrom), make(chan error)
	go func() { root <- gather(members[0], late, out) }()
	<-late.entered
	sender := make(chan error, 1)
	go func() {
		err := gather(members[1], members[1].w, nil)
		clear(block)
		sender <- err
	}()
	testkit.Eventually(t, "the sender is in the call", func() bool { return members[0].node.ranks[1].slots[1].flag.Load() == 1 })
	if len(sender) > 0 {
		t.Error("the sender has returned before its block was read")
	}
	close(late.goOn)
	if err := errors.Join(<-root, <-sender); err != nil || !bytes.Equal(out, content(1, 0, readFrom)) {
		t.Errorf("other data, or %v", err)
	}
}

// A cell of the largest group has room for a length and some data.
func TestCellsOfTheLargestGroupHaveRoom(t *testing.T) {
	if got := cellSize(MaxRanks); got < 2*lengthSize {
		t.Errorf("a cell of %d bytes", got)
	}
}
