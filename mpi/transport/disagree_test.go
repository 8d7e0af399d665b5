package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"ddpbatch/internal/testkit"
)

// Calls differ: both sides say so, whether the frame comes before this rank's
// call, in it, after it, or to a rank that waits for somebody else.
func TestMismatch(t *testing.T) {
	mine, theirs := Call{Seq: 2, Count: 10, Op: 1}, Call{Seq: 2, Count: 10, Op: 2}
	tests := []struct {
		name string
		rank func(ctx context.Context, m Mesh) error // what rank 0 does of 3; rank 1 has sent
	}{
		{"waiting_for_it", func(ctx context.Context, m Mesh) error { return m.Recv(ctx, 1, make([]byte, 4)) }},
		{"waiting_for_another", func(ctx context.Context, m Mesh) error { return m.Recv(ctx, 2, nil) }},
	}
	for _, early := range []bool{false, true} {
		for _, tt := range tests {
			name := tt.name
			if early {
				name += "_early_frame"
			}
			t.Run(name, func(t *testing.T) {
				meshes := newMeshes(t, 3, func(cfg *Config) {
					cfg.Describe = func(c Call) string { return string('a' + rune(c.Op)) }
				})
				meshes[1].Begin(theirs)
				if early {
					meshes[1].Send(t.Context(), 0, make([]byte, 4))
					testkit.Eventually(t, "the frame is there", func() bool { return meshes[0].peers[1].last.Load() == 2 })
				}
				var errs []error
				testkit.Within(t, testkit.Moment, func() {
					errs = testkit.Each(2, func(rank int) error {
						if rank == 1 {
							meshes[1].Send(t.Context(), 0, make([]byte, 4))
							return meshes[1].Recv(t.Context(), 0, nil)
						}
						if err := meshes[0].Begin(mine); err != nil {
							return err
						}
						return tt.rank(t.Context(), meshes[0])
					})
				})
				var diff *MismatchError
				if !errors.As(errs[0], &diff) || !errors.Is(errs[0], ErrMismatch) {
					t.Errorf("rank 0 got %v", errs[0])
				}
				wantAbort(t, errs[1], 0, 1, ErrMismatch)
				for rank, err := range errs {
					if !strings.Contains(err.Error(), "calls differ: rank 0 called b, rank 1 called c") {
						t.Errorf("rank %d got %q", rank, err)
					}
				}
			})
		}
	}
}

// A frame of a call that this rank has finished is set against what it called then.
func TestLateMismatch(t *testing.T) {
	meshes := newMeshes(t, 3, func(cfg *Config) {
		cfg.Describe = func(c Call) string { return fmt.Sprintf("%c%d", 'a'+rune(c.Op), c.Seq) }
	})
	for seq := range uint64(3) {
		meshes[0].Begin(Call{Seq: seq + 1, Op: uint8(seq)})
	}
	meshes[1].Begin(Call{Seq: 2, Op: 7})
	meshes[1].Send(t.Context(), 0, nil)
	err := meshes[0].Recv(t.Context(), 2, nil)
	if !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), "rank 0 called b2, rank 1 called h2") {
		t.Errorf("got %v", err)
	}
	err = meshes[1].Recv(t.Context(), 0, nil)
	wantAbort(t, err, 0, 1, ErrMismatch)
}

// What comes after the handshake is checked, too.
func TestHostilePeer(t *testing.T) {
	frame := func(h header) []byte {
		var head [headerSize]byte
		h.encode(&head)
		return head[:]
	}
	tests := []struct {
		name string
		sent []byte
		text string
	}{
		{"rubbish", bytes.Repeat([]byte("HTTP"), 8), "a frame begins with"},
		{"longer_than_due", frame(header{kind: kindData, length: 9}), "a frame of 9 bytes where 8 are due"},
		{"shorter_than_due", frame(header{kind: kindData, length: 7}), "a frame of 7 bytes where 8 are due"},
		{"huge", frame(header{kind: kindData, length: 1 << 31}), "2147483648 bytes"},
		{"abort_without_words", frame(header{kind: kindAbort}), "an abort of 0 bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			meshes := newMeshes(t, 2, nil)
			meshes[1].peers[0].conn.Write(tt.sent)
			var err error
			testkit.Within(t, testkit.Moment, func() { err = meshes[0].Recv(t.Context(), 1, make([]byte, 8)) })
			wantPeerError(t, err, 1, ErrProtocol)
			if !strings.Contains(err.Error(), tt.text) {
				t.Errorf("got %q, want %q", err, tt.text)
			}
		})
	}
}

func TestAbort(t *testing.T) {
	meshes := newMeshes(t, 3, nil)
	why := errors.New("bad arguments")
	var errs []error
	testkit.Within(t, testkit.Moment, func() {
		errs = testkit.Each(3, func(rank int) error {
			if rank == 1 {
				meshes[1].Abort(why)
			}
			return meshes[rank].Recv(t.Context(), (rank+1)%3, nil)
		})
	})
	if errs[1] != why {
		t.Errorf("rank 1 got %v", errs[1])
	}
	wantAbort(t, errs[0], 1, 1, ErrAborted)
	wantAbort(t, errs[2], 1, 1, ErrAborted)
}
