package mpi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"ddpbatch/internal/testkit"
)

var couples = []int{2, 3, 5}

// Every rank sends its number to every other rank, all at once, with a tag for each source. This is torch's send_recv all-to-all.
func TestMessagesGoFromAllToAll(t *testing.T) {
	everywhere(t, couples, func(ctx context.Context, c *Comm) error {
		var requests []*Request
		own := []int32{int32(c.Rank())}
		got := make([][]int32, c.Size())
		for rank := range c.Size() {
			if rank == c.Rank() {
				continue
			}
			got[rank] = make([]int32, 1)
			requests = append(requests, ISend(c, own, rank, c.Rank()), IRecv(c, got[rank], rank, rank))
		}
		if err := WaitAll(ctx, requests...); err != nil {
			return err
		}
		for rank := range got {
			if rank != c.Rank() && got[rank][0] != int32(rank) {
				return fmt.Errorf("got %v of rank %d", got[rank], rank)
			}
		}
		return nil
	})
}

// Batches of long and empty messages go around a ring while collectives of the same Comm run.
func TestMessagesRunBesideCollectives(t *testing.T) {
	everywhere(t, couples, func(ctx context.Context, c *Comm) error {
		next, last := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
		lengths := []int{0, 1, 0, 100_000, 3, 70_000}
		var requests []*Request
		bufs := make([][]float64, len(lengths))
		sums := make([][]int64, len(lengths))
		for i, n := range lengths {
			bufs[i], sums[i] = make([]float64, n), []int64{int64(i)}
			requests = append(requests,
				IRecv(c, bufs[i], last, 5), ISend(c, slices.Repeat([]float64{float64(100*c.Rank() + i)}, n), next, 5),
				IAllReduce(ctx, c, sums[i], Sum))
		}
		if err := WaitAll(ctx, requests...); err != nil {
			return err
		}
		for i, n := range lengths {
			want := slices.Repeat([]float64{float64(100*last + i)}, n)
			status := requests[3*i].Status()
			if !slices.Equal(bufs[i], want) || status != (Status{Source: last, Count: n}) || sums[i][0] != int64(i*c.Size()) {
				return fmt.Errorf("message %d of %d elements is wrong, %+v; the sum beside it is %d", i, n, status, sums[i][0])
			}
		}
		return nil
	})
}

// Messages are matched by their tags, whatever their order. Messages with the same tag arrive in the order in which they were sent.
func TestMessageTagsAreKeptApart(t *testing.T) {
	const tags, each = 10, 20
	everywhere(t, couples, func(ctx context.Context, c *Comm) error {
		if c.Rank() == 0 {
			for i := range tags * each {
				if err := Send(ctx, c, []int{i}, 1, i%tags); err != nil {
					return err
				}
			}
			return nil
		}
		for tag := tags - 1; tag >= 0 && c.Rank() == 1; tag-- {
			for i := range each {
				got := make([]int, 4)
				status, err := Recv(ctx, c, got, 0, tag)
				if err != nil {
					return err
				}
				if want := i*tags + tag; got[0] != want || status != (Status{Source: 0, Count: 1}) {
					return fmt.Errorf("message %d with tag %d is %d, want %d; %+v", i, tag, got[0], want, status)
				}
			}
		}
		return nil
	})
}

// A receive from any source names the source: rank 0 answers the rank that asked. This is torch's recv any-source, and Gloo's RPC over it.
func TestReceiveFromAnySourceNamesIt(t *testing.T) {
	const questions = 30
	everywhere(t, couples, func(ctx context.Context, c *Comm) error {
		if c.Rank() > 0 {
			for i := range questions {
				answer := make([]uint16, 1)
				if err := Send(ctx, c, []uint16{uint16(i)}, 0, 1); err != nil {
					return err
				}
				if _, err := Recv(ctx, c, answer, 0, 2); err != nil {
					return err
				}
				if answer[0] != uint16(i*c.Rank()) {
					return fmt.Errorf("asked %d, answered %d", i, answer[0])
				}
			}
			return nil
		}
		received := make([]int, c.Size())
		for range questions * (c.Size() - 1) {
			buf := make([]uint16, 1)
			status, err := Recv(ctx, c, buf, AnySource, 1)
			if err != nil {
				return err
			}
			if int(buf[0]) != received[status.Source] || status.Count != 1 {
				return fmt.Errorf("question %d of rank %d is %d", received[status.Source], status.Source, buf[0])
			}
			received[status.Source]++
			if err := Send(ctx, c, []uint16{buf[0] * uint16(status.Source)}, status.Source, 2); err != nil {
				return err
			}
		}
		return nil
	})
}

// If the context of a receive ends, the receive fails and the Comm breaks, so the messages of the other rank fail, too. The cases are
// Gloo's AbortRecv and AbortSend.
func TestCancelEndsMessagesAndTheComm(t *testing.T) {
	for _, over := range transports {
		t.Run(over, func(t *testing.T) {
			w := newWorldOn(t, over, 2, nil)
			ctx, cancel := context.WithCancel(t.Context())
			errs := make(chan error, 2)
			go func() { _, err := Recv(ctx, w[0], make([]int8, 1), 1, 0); errs <- err }()
			go func() { _, err := Recv(t.Context(), w[1], make([]int8, 1), 0, 0); errs <- err }()
			testkit.Within(t, testkit.Patience, func() {
				cancel()
				one, other := <-errs, <-errs
				if errors.Is(other, context.Canceled) {
					one, other = other, one
				}
				if !errors.Is(one, context.Canceled) || !errors.Is(other, ErrAborted) {
					t.Errorf("got %v, and %v", one, other)
				}
			})
			if err := Send(t.Context(), w[1], []int8{1}, 0, 0); !errors.Is(err, ErrAborted) {
				t.Errorf("later got %v", err)
			}
		})
	}
}

func TestMisusedMessageIsAnError(t *testing.T) {
	tests := []struct {
		name string
		zero func(ctx context.Context, c *Comm) error // what rank 0 does
		one  func(ctx context.Context, c *Comm) error // what rank 1 does, or nil
		is   error
		text string
	}{
		{
			"too_long", func(ctx context.Context, c *Comm) error { _, err := Recv(ctx, c, make([]int32, 2), 1, 3); return err },
			func(ctx context.Context, c *Comm) error { return Send(ctx, c, make([]int32, 3), 0, 3) },
			ErrTruncated, "it has 12 bytes, the buffer has 8",
		},
		{
			"other_type", func(ctx context.Context, c *Comm) error { _, err := Recv(ctx, c, make([]int32, 2), 1, 3); return err },
			func(ctx context.Context, c *Comm) error { return Send(ctx, c, make([]float32, 2), 0, 3) },
			ErrMismatch, "rank 1 called ",
		},
		{"no_rank", func(ctx context.Context, c *Comm) error { return Send(ctx, c, []int8{1}, 2, 0) }, nil, nil,
			"rank 2 does not exist: ranks are 0 to 1"},
		{"negative_rank", func(ctx context.Context, c *Comm) error { return Send(ctx, c, []int8{1}, AnySource, 0) },
			nil, nil, "rank -1 does not exist"},
		{"itself", func(ctx context.Context, c *Comm) error { return Send(ctx, c, []int8{1}, 0, 0) }, nil, nil, "rank 0 is this rank"},
		{"negative_tag", func(ctx context.Context, c *Comm) error { return Send(ctx, c, []int8{1}, 1, -1) }, nil, nil,
			"the tag must not be negative, got -1"},
	}
	for _, over := range transports {
		for _, tt := range tests {
			t.Run(over+"/"+tt.name, func(t *testing.T) {
				w := newWorldOn(t, over, 2, nil)
				errs := testkit.Each(2, func(rank int) error {
					if rank == 0 {
						return tt.zero(t.Context(), w[0])
					}
					if tt.one == nil {
						return nil
					}
					return tt.one(t.Context(), w[1])
				})
				if errs[0] == nil || tt.is != nil && !errors.Is(errs[0], tt.is) || !strings.Contains(errs[0].Error(), tt.text) {
					t.Errorf("got %v, want %q", errs[0], tt.text)
				}
				if tt.is == nil {
					return
				}
				// The sender gets the error at once, or in its next call.
				if err := w[1].Barrier(t.Context()); !errors.Is(err, tt.is) {
					t.Errorf("the sender got %v", err)
				}
			})
		}
	}
}
