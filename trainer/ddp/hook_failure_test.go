package ddp

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi"
	"ddpbatch/trainer/nn"
)

// Whatever ends the reducer of one rank is an error of all, which says what it was.
func TestHookFails(t *testing.T) {
	for name, fail := range map[string]func() error{
		"an error":     func() error { return errors.New("out of bits") },
		"a panic":      func() error { panic("out of bits") },
		"a nil bucket": func() error { var b *Bucket; b.Data[0] = 1; return nil },
	} {
		want := "out of bits"
		if name == "a nil bucket" {
			want = "nil pointer dereference"
		}
		for _, overlap := range []bool{true, false} {
			for _, over := range transports {
				t.Run(fmt.Sprintf("%s/%t/%s", name, overlap, over), func(t *testing.T) {
					failures(t, ranksOn(t, over, 3, func(ctx context.Context, comm *mpi.Comm) error {
						reduced := 0
						return failing(ctx, comm, Config{Overlap: overlap, Hook: fakeHook{
							reduce: func(ctx context.Context, comm *mpi.Comm, b *Bucket) error {
								if reduced++; reduced == 5 && comm.Rank() == 1 {
									return fail()
								}
								return mpi.AllReduce(ctx, comm, b.Data, mpi.Sum)
							},
						}})
					}), want)
				})
			}
		}
	}
}

// A hook that ends its goroutine, as t.FailNow does, ends the step.
func TestHookEndsItsGoroutine(t *testing.T) {
	failures(t, ranksOn(t, "local", 2, func(ctx context.Context, comm *mpi.Comm) error {
		return failing(ctx, comm, Config{Overlap: true, Hook: fakeHook{
			reduce: func(ctx context.Context, comm *mpi.Comm, b *Bucket) error {
				if comm.Rank() == 1 {
					runtime.Goexit()
				}
				return mpi.AllReduce(ctx, comm, b.Data, mpi.Sum)
			},
		}})
	}), "goroutine has ended in the middle")
}

func TestHookCannotBind(t *testing.T) {
	for _, nth := range []int{1, 2} { // in New, and for the buckets of the second step
		for rank, err := range ranksOn(t, "local", 2, func(ctx context.Context, comm *mpi.Comm) error {
			binds := 0
			err := failing(ctx, comm, Config{Hook: fakeHook{
				bind: func([]*Bucket) error {
					if binds++; binds == nth && comm.Rank() == 1 {
						return errors.New("no room")
					}
					return nil
				},
				reduce: func(ctx context.Context, comm *mpi.Comm, b *Bucket) error {
					return mpi.AllReduce(ctx, comm, b.Data, mpi.Sum)
				},
			}})
			return err
		}) {
			if err == nil || !strings.Contains(err.Error(), "no room") {
				t.Errorf("bind %d: rank %d: error %v", nth, rank, err)
			}
		}
	}
}

// No rank waits for a Backward that goes on for long on another, whose hook has failed: the Comm breaks at once.
func TestFailureIsToldDuringBackward(t *testing.T) {
	first := make(chan struct{})
	testkit.Within(t, testkit.Patience, func() {
		failures(t, ranksOn(t, "local", 2, func(ctx context.Context, comm *mpi.Comm) error {
			params := fakeModel(4, 4)
			d, err := New(ctx, comm, params, nil, Config{FirstBucketBytes: 1, Overlap: true, Hook: fakeHook{
				reduce: func(ctx context.Context, comm *mpi.Comm, b *Bucket) error {
					if comm.Rank() == 1 {
						return errors.New("out of bits")
					}
					return mpi.AllReduce(ctx, comm, b.Data, mpi.Sum)
				},
			}})
			if err != nil {
				return err
			}
			pass := new(nn.Pass)
			d.Begin(ctx, pass, nil)
			backward(pass, params[1:], comm.Rank(), 0)
			if comm.Rank() == 1 {
				<-first // rank 0 has ended its step
			}
			backward(pass, params[:1], comm.Rank(), 0)
			err = d.Finish()
			if comm.Rank() == 0 {
				close(first)
			}
			return err
		}), "out of bits")
	})
}
