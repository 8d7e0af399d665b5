package mpi

import (
	"context"
	"encoding/json"
	"fmt"
)

// maxObject is the largest number of bytes of one rank's encoded object, or of its other bytes.
const maxObject = 1 << 30

// BroadcastObject gives every rank root's value. Objects travel as JSON, so they cannot run code of the sender. What JSON does not encode,
// such as unexported fields, is lost.
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
		return got, fmt.Errorf("broadcast an object: decode the object of rank %d as %T: %w", root, got, err)
	}
	return got, nil
}

// BroadcastBytes gives every rank root's b, at most 1 GiB. The other ranks need not know its length, and their own b is not used. Root gets
// b itself.
func BroadcastBytes(ctx context.Context, c *Comm, b []byte, root int) ([]byte, error) {
	b, err := broadcastBytes(ctx, c, b, nil, root)
	if err != nil {
		return nil, fmt.Errorf("broadcast bytes: %w", err)
	}
	return b, nil
}

// broadcastBytes is BroadcastBytes. If wrong is not nil, it is root's error in encoding b.
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
		return 0, fmt.Errorf("rank %d could not encode its object", rank)
	case n > maxObject:
		return 0, fmt.Errorf("rank %d sends %d bytes, more than the limit of %d", rank, n, maxObject)
	}
	return int(n), nil
}

// AllGatherObject gives every rank the values of all ranks, by rank. They travel as in BroadcastObject.
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

// GatherObject gives root the values of all ranks, by rank. Other ranks get nil.
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

// GatherBytes gives root the b of all ranks, by rank, at most 1 GiB each. Root need not know their lengths. Other ranks get nil.
func GatherBytes(ctx context.Context, c *Comm, b []byte, root int) ([][]byte, error) {
	all, err := gatherBytes(ctx, c, b, nil, root)
	if err != nil {
		return nil, fmt.Errorf("gather bytes: %w", err)
	}
	return all, nil
}

// gatherBytes is GatherBytes. If wrong is not nil, it is this rank's error in encoding b.
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

// ScatterObject gives each rank i root's values[i]. The values of other ranks are not used.
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
		return mine, fmt.Errorf("scatter objects: decode the object of rank %d as %T: %w", root, mine, err)
	}
	return mine, nil
}

// encodeObjects joins the encoded values, and sets counts to their lengths in bytes.
func encodeObjects[T any](values []T, counts []int) ([]byte, error) {
	if len(values) != len(counts) {
		return nil, fmt.Errorf("there must be %d values, one for each rank, got %d", len(counts), len(values))
	}
	var all []byte
	for rank, value := range values {
		text, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		if len(text) > maxObject {
			return nil, fmt.Errorf("the object for rank %d has %d bytes, more than the limit of %d", rank, len(text), maxObject)
		}
		counts[rank] = len(text)
		all = append(all, text...)
	}
	return all, nil
}

// gatherLengths returns the lengths of all ranks' objects, on every rank.
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

// splitByCounts splits text into parts of the given lengths.
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
			return nil, fmt.Errorf("gather objects: decode the object of rank %d as %T: %w", rank, values[rank], err)
		}
	}
	return values, nil
}
