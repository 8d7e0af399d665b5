package mpi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"
	"strings"
	"testing"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/transport"
)

// errOwn returns the error of a rank in the tests of Agree. Its class is fs.ErrExist, and on odd ranks also fs.ErrClosed.
func errOwn(rank int) error {
	if rank%2 == 1 {
		return fmt.Errorf("read %d: %w: %w", rank, fs.ErrClosed, fs.ErrExist)
	}
	return fmt.Errorf("read %d: %w", rank, fs.ErrExist)
}

// If ranks fail, each of them gets its own error. The others get that of the first failing rank, with its number, its text and its first
// class. If no rank fails, all get nil.
func TestAgree(t *testing.T) {
	everywhere(t, []int{1, 2, 5}, func(ctx context.Context, c *Comm) error {
		last := c.Size() - 1
		for _, failing := range [][]int{{}, {0}, {last}, {last / 2, last}, {0, last / 2, last}} {
			var own error
			if slices.Contains(failing, c.Rank()) {
				own = errOwn(c.Rank())
			}
			err := Agree(ctx, c, own, fs.ErrExist, fs.ErrClosed)
			if err := agreed(err, own, failing, fs.ErrExist, fs.ErrClosed); err != nil {
				return fmt.Errorf("%v of %d ranks fail: %w", failing, c.Size(), err)
			}
		}
		own := errOwn(c.Rank())
		if err := Agree(ctx, c, own); err != own {
			return fmt.Errorf("all ranks fail: rank %d got %w", c.Rank(), err)
		}
		return nil
	})
}

// agreed checks err, which Agree returned on a rank whose own error is own. A rank without an error of its own must get that of the first
// of the failing ranks, and errors.Is must match it with class but not with other.
func agreed(err, own error, failing []int, class, other error) error {
	remote, ok := errors.AsType[*RemoteError](err)
	switch {
	case len(failing) == 0:
		if err != nil {
			return fmt.Errorf("got %w", err)
		}
	case own != nil:
		if err != own {
			return fmt.Errorf("got %w instead of its own", err)
		}
	case !ok || remote.Rank() != failing[0] || remote.Text() != errOwn(failing[0]).Error():
		return fmt.Errorf("got %w, want rank %d's", err, failing[0])
	case err.Error() != fmt.Sprintf("rank %d: %v", failing[0], errOwn(failing[0])) || !errors.Is(err, class) || errors.Is(err, other):
		return fmt.Errorf("got %w, of class %v %t, %v %t", err, class, errors.Is(err, class), other, errors.Is(err, other))
	}
	return nil
}

// An error without a class matches none on the other ranks. An error from another group becomes one of the rank that passes it on. A long
// text is cut.
func TestAgreeOnWhatIsKept(t *testing.T) {
	long := strings.Repeat("é", 1<<20)
	for name, tt := range map[string]struct {
		err  error
		want string
		is   error // nil: no class
	}{
		"no class":          {io.ErrUnexpectedEOF, "rank 1: unexpected EOF", nil},
		"another group's":   {fmt.Errorf("build: %w", remoteOf(t, fs.ErrExist)), "rank 1: build: rank 0: file already exists", fs.ErrExist},
		"an empty text":     {errors.New(""), "rank 1: ", nil},
		"too long":          {errors.New(long), "rank 1: " + long[:4<<10], nil},
		"cut in a sign":     {errors.New("x" + long), "rank 1: x" + long[:4<<10-2], nil},
		"text that is none": {errors.New("a\xffb"), "rank 1: a\ufffdb", nil},
	} {
		w := newWorldOn(t, "local", 3, nil)
		for rank, err := range testkit.Each(3, func(rank int) error {
			if rank == 1 {
				return Agree(t.Context(), w[rank], tt.err, fs.ErrExist)
			}
			return Agree(t.Context(), w[rank], nil, fs.ErrExist)
		}) {
			switch {
			case rank == 1:
				if err != tt.err {
					t.Errorf("%s: rank 1 got %.100v instead of its own", name, err)
				}
			case err == nil || err.Error() != tt.want || errors.Is(err, fs.ErrExist) != (tt.is != nil) ||
				errors.Is(err, io.ErrUnexpectedEOF):
				t.Errorf("%s: rank %d got %.100v, want %.100q", name, rank, err, tt.want)
			}
		}
	}
}

// remoteOf returns the error that rank 1 of another group gets if its rank 0 fails with err.
func remoteOf(t *testing.T, err error) error {
	w := newWorldOn(t, "local", 2, nil)
	return testkit.Each(2, func(rank int) error {
		own := err
		if rank == 1 {
			own = nil
		}
		return Agree(t.Context(), w[rank], own, fs.ErrExist)
	})[1]
}

// Every rank gets the root's value or its error. The function runs only on the root.
func TestFromRoot(t *testing.T) {
	everywhere(t, []int{1, 2, 5}, func(ctx context.Context, c *Comm) error {
		for root := range c.Size() {
			calls := 0
			got, err := FromRoot(ctx, c, root, func() (shard, error) { calls++; return shardOf(c.Rank()), nil })
			if want := shardOf(root); err != nil || got.Rank != root || got.Name != want.Name || (calls == 1) != (c.Rank() == root) {
				return fmt.Errorf("from %d: %+v after %d calls, %w", root, got, calls, err)
			}
			var own error
			n, err := FromRoot(ctx, c, root, func() (int, error) { own = errOwn(root); return 7, own }, fs.ErrExist, fs.ErrClosed)
			if err := agreed(err, own, []int{root}, fs.ErrExist, fs.ErrClosed); err != nil {
				return fmt.Errorf("error of %d: %w", root, err)
			}
			if c.Rank() != root && n != 0 {
				return fmt.Errorf("rank %d got %d beside the error", c.Rank(), n)
			}
			if _, err := FromRoot(ctx, c, root, func() (float64, error) { return math.NaN(), nil }); err == nil { // JSON cannot encode NaN
				return fmt.Errorf("rank %d got a value that cannot be encoded", c.Rank())
			}
		}
		return nil
	})
}

// If a process is lost or a rank's context has ended, the remaining ranks get an error. The error of a rank that has failed itself includes
// its own error.
func TestLostRankIsAnErrorOfAgree(t *testing.T) {
	calls := map[string]func(ctx context.Context, c *Comm, own error) error{
		"Agree": func(ctx context.Context, c *Comm, own error) error { return Agree(ctx, c, own) },
		"FromRoot": func(ctx context.Context, c *Comm, own error) error {
			_, err := FromRoot(ctx, c, 0, func() (int, error) { return 0, own })
			return err
		},
	}
	for name, call := range calls {
		t.Run(name+"/lost", func(t *testing.T) {
			network := transport.NewNetwork(3)
			w := newLocal(t, network, nil)
			own := errors.New("disk on fire")
			var errs []error
			testkit.Within(t, testkit.Patience, func() {
				errs = testkit.Each(3, func(rank int) error {
					if rank == 2 {
						network.Kill(2)
						return nil
					}
					for { // a root may not notice the loss in its first call
						if err := call(t.Context(), w[rank], map[int]error{0: own}[rank]); rank != 0 || w[0].Err() != nil {
							return err
						}
					}
				})
			})
			if !errors.Is(errs[0], own) || !errors.Is(errs[0], ErrLost) {
				t.Errorf("rank 0 got %v, want its own error and ErrLost", errs[0])
			}
			if name == "Agree" && !errors.Is(errs[1], ErrLost) || errs[1] == nil {
				t.Errorf("rank 1 got %v", errs[1])
			}
		})
		t.Run(name+"/ended", func(t *testing.T) {
			w := newWorldOn(t, "local", 3, nil)
			ended, end := context.WithCancel(t.Context())
			end()
			var errs []error
			testkit.Within(t, testkit.Patience, func() {
				errs = testkit.Each(3, func(rank int) error {
					if rank == 1 {
						return call(ended, w[rank], nil)
					}
					for {
						if err := call(t.Context(), w[rank], nil); err != nil {
							return err
						}
					}
				})
			})
			if !errors.Is(errs[1], context.Canceled) {
				t.Errorf("rank 1 got %v, want that its context has ended", errs[1])
			}
			for _, rank := range []int{0, 2} {
				if !errors.Is(errs[rank], ErrAborted) || !strings.Contains(errs[rank].Error(), "rank 1") {
					t.Errorf("rank %d got %v, want that rank 1 gave up", rank, errs[rank])
				}
			}
		})
	}
}
