package distributed

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
)

// talk is how ranks exchange facts: JSON over a Group. What it sends always is JSON: that it is not is a mistake in this package, and panics.
type talk struct {
	group   Group
	classes []error // the errors that keep their identity on the way
}

func newTalk(group Group, own []error) *talk {
	return &talk{group: group, classes: slices.Concat(own, sentinels)}
}

func (t *talk) lead() bool { return t.group.Rank() == 0 }

func encode(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic("distributed: a message is no JSON")
	}
	return text
}

// exchange tells rank 0 what every rank has to say, and all ranks what rank 0 decides. An error of decide, or a message that rank 0 cannot
// read, is every rank's; own is this rank's, and is kept whole where it is the one that counts.
func exchange[A, B any](ctx context.Context, t *talk, message A, own error, decide func(all []A) (B, error)) (b B, err error) {
	texts, err := t.group.Gather(ctx, encode(message))
	if err != nil {
		return b, err
	}
	if !t.lead() {
		return fromRank0(ctx, t, b, own)
	}
	all, err := decode[A](texts, t.group.Size())
	if err == nil {
		b, err = decide(all)
	}
	return fromRank0(ctx, t, b, err)
}

func decode[A any](texts [][]byte, ranks int) ([]A, error) {
	if len(texts) != ranks {
		return nil, fmt.Errorf("%d messages of %d ranks", len(texts), ranks)
	}
	all := make([]A, ranks)
	for rank, text := range texts {
		if err := json.Unmarshal(text, &all[rank]); err != nil {
			return nil, fmt.Errorf("message of rank %d: %w", rank, err)
		}
	}
	return all, nil
}

// answer is what rank 0 tells all: a value or a failure.
type answer[T any] struct {
	Value   T        `json:"value"`
	Failure *failure `json:"failure,omitempty"`
}

// fromRank0 gives every rank what rank 0 has: value, or its error err. The others' values do not count.
func fromRank0[T any](ctx context.Context, t *talk, value T, err error) (T, error) {
	a := answer[T]{Value: value}
	var payload []byte
	if t.lead() {
		a.Failure = t.failureOf(err)
		payload = encode(a)
	}
	text, e := t.group.Broadcast(ctx, payload)
	if e != nil {
		return value, e
	}
	if !t.lead() {
		a = answer[T]{}
		if e := json.Unmarshal(text, &a); e != nil {
			return value, fmt.Errorf("message of rank 0: %w", e)
		}
	}
	return a.Value, t.error(a.Failure, err)
}
