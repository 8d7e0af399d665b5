package mpi

import (
	"context"
	"encoding/json"
	"fmt"
)

// maxObject is the longest encoded object, or other bytes, of one rank.
const maxObject = 1 << 30

// BroadcastObject gives every rank root's value. Objects travel as JSON, which runs no code of the sender's; what of a
// value JSON does not carry, such as unexported fields, is lost.
func BroadcastObject[T any](ctx context.Context, c *Comm, value T, root int) (T, error) {
	var text []byte
	var wrong error
	if c.Rank() == root {
		text, wrong = json.Marshal(value)
	}
	text, err := broadcastBytes(ctx, c, text, wrong, root)
	if err != nil {
		return value, fmt.Errorf("broadcast an object: %w", err)
	}
	if c.Rank() == root {
		return value, nil
	}
	var got T
	if err := json.Unmarshal(text, &got); err != nil {
		return got, fmt.Errorf("broadcast an object: that of rank %d is no %T: %w", root, got, err)
	}
	return got, nil
}

// BroadcastBytes gives every rank root's b, of which the others need not know the length: at most 1 GiB. Their own b is not used. Root
// gets b itself.
func BroadcastBytes(ctx context.Context, c *Comm, b []byte, root int) ([]byte, error) {
	b, err := broadcastBytes(ctx, c, b, nil, root)
	if err != nil {
		return nil, fmt.Errorf("broadcast bytes: %w", err)
	}
	return b, nil
}

// broadcastBytes is BroadcastBytes of what root could not encode where wrong is not nil.
func broadcastBytes(ctx context.Context, c *Comm, b []byte, wrong error, root int) ([]byte, error) {
	n := []int64{int64(len(b))}
	if wrong != nil {
		n[0] = -1
	}
	if err := Broadcast(ctx, c, n, root); err != nil {
		return nil, err
	}
	length, err := checkLength(n[0], root, wrong)
	if err != nil {
		return nil, err
	}
	if c.Rank() != root {
		b = make([]byte, length)
	}
	return b, Broadcast(ctx, c, b, root)
}

func checkLength(n int64, rank int, wrong error) (int, error) {
	switch {
	case wrong != nil:
		return 0, wrong
	case n < 0:
		return 0, fmt.Errorf("rank %d could not encode its own", rank)
	case n > maxObject:
		return 0, fmt.Errorf("that of rank %d has %d bytes, more than %d", rank, n, maxObject)
	}
	return int(n), nil
}

// AllGatherObject gives every rank all ranks' values, by rank. They travel as those of BroadcastObject.
func AllGatherObject[T any](ctx context.Context, c *Comm, value T) ([]T, error) {
	text, wrong := json.Marshal(value)
	counts, err := gatherLengths(ctx, c, len(text), wrong)
	if err != nil {
		return nil, fmt.Errorf("gather objects: %w", err)
	}
	out := make([]byte, sum(counts))
	if err := AllGatherV(ctx, c, out, text, counts); err != nil {
		return nil, fmt.Errorf("gather objects: %w", err)
	}
	return decodeObjects[T](splitByCounts(out, counts))
}

// GatherObject gives root all ranks' values, by rank, and the others nil.
func GatherObject[T any](ctx context.Context, c *Comm, value T, root int) ([]T, error) {
	text, wrong := json.Marshal(value)
	texts, err := gatherBytes(ctx, c, text, wrong, root)
	if err != nil {
		return nil, fmt.Errorf("gather objects: %w", err)
	}
	if c.Rank() != root {
		return nil, nil
	}
	return decodeObjects[T](texts)
}

// GatherBytes gives root all ranks' b, by rank, and the others nil. Their lengths, at most 1 GiB each, need not be known to root.
func GatherBytes(ctx context.Context, c *Comm, b []byte, root int) ([][]byte, error) {
	all, err := gatherBytes(ctx, c, b, nil, root)
	if err != nil {
		return nil, fmt.Errorf("gather bytes: %w", err)
	}
	return all, nil
}

// gatherBytes is GatherBytes of what this rank could not encode where wrong is not nil.
func gatherBytes(ctx context.Context, c *Comm, b []byte, wrong error, root int) ([][]byte, error) {
	counts, err := gatherLengths(ctx, c, len(b), wrong)
	if err != nil {
		return nil, err
	}
	if c.Rank() != root {
		return nil, GatherV(ctx, c, nil, b, nil, root)
	}
	out := make([]byte, sum(counts))
	if err := GatherV(ctx, c, out, b, counts, root); err != nil {
		return nil, err
	}
	return splitByCounts(out, counts), nil
}

// ScatterObject gives rank i values[i] of root. Other ranks' values are not used.
func ScatterObject[T any](ctx context.Context, c *Comm, values []T, root int) (T, error) {
	var mine T
	counts := make([]int, c.Size())
	var in []byte
	var wrong error
	if c.Rank() == root {
		in, wrong = encodeObjects(values, counts)
	}
	lengths := make([]int64, c.Size())
	for rank, n := range counts {
		lengths[rank] = int64(n)
		if wrong != nil {
			lengths[rank] = -1
		}
	}
	if err := Broadcast(ctx, c, lengths, root); err != nil {
		return mine, fmt.Errorf("scatter objects: %w", err)
	}
	n, err := checkLength(lengths[c.Rank()], root, wrong)
	if err != nil {
		return mine, fmt.Errorf("scatter objects: %w", err)
	}
	out := make([]byte, n)
	if err := ScatterV(ctx, c, out, in, counts, root); err != nil {
		return mine, fmt.Errorf("scatter objects: %w", err)
	}
	if err := json.Unmarshal(out, &mine); err != nil {
		return mine, fmt.Errorf("scatter objects: that of rank %d is no %T: %w", root, mine, err)
	}
	return mine, nil
}

// encodeObjects joins the texts of values, and counts the bytes of each.
func encodeObjects[T any](values []T, counts []int) ([]byte, error) {
	if len(values) != len(counts) {
		return nil, fmt.Errorf("there are %d values for %d ranks", len(values), len(counts))
	}
	var all []byte
	for rank, value := range values {
		text, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		if len(text) > maxObject {
			return nil, fmt.Errorf("that for rank %d has %d bytes, more than %d", rank, len(text), maxObject)
		}
		counts[rank] = len(text)
		all = append(all, text...)
	}
	return all, nil
}

// gatherLengths tells all ranks how long each one's object is.
func gatherLengths(ctx context.Context, c *Comm, length int, wrong error) ([]int, error) {
	own := []int64{int64(length)}
	if wrong != nil {
		own[0] = -1
	}
	all := make([]int64, c.Size())
	if err := AllGather(ctx, c, all, own); err != nil {
		return nil, err
	}
	if wrong != nil {
		return nil, wrong
	}
	counts := make([]int, len(all))
	for rank, n := range all {
		var err error
		if counts[rank], err = checkLength(n, rank, nil); err != nil {
			return nil, err
		}
	}
	return counts, nil
}

func sum(counts []int) int {
	total := 0
	for _, n := range counts {
		total += n
	}
	return total
}

// splitByCounts parts text by counts.
func splitByCounts(text []byte, counts []int) [][]byte {
	parts := make([][]byte, len(counts))
	for i, n := range counts {
		parts[i], text = text[:n:n], text[n:]
	}
	return parts
}

func decodeObjects[T any](texts [][]byte) ([]T, error) {
	values := make([]T, len(texts))
	for rank, text := range texts {
		if err := json.Unmarshal(text, &values[rank]); err != nil {
			return nil, fmt.Errorf("gather objects: that of rank %d is no %T: %w", rank, values[rank], err)
		}
	}
	return values, nil
}
