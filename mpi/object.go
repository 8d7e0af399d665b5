package mpi

import (
	"context"
	"encoding/json"
	"fmt"
)

// maxObject is the longest encoded object, in bytes.
const maxObject = 1 << 30

// BroadcastObject gives every rank root's value. Objects travel as JSON, which runs no code of the sender's; what of a
// value JSON does not carry, such as unexported fields, is lost.
func BroadcastObject[T any](ctx context.Context, c *Comm, value T, root int) (T, error) {
	var text []byte
	var wrong error
	if c.Rank() == root {
		text, wrong = json.Marshal(value)
	}
	length, err := broadcastLength(ctx, c, len(text), wrong, root)
	if err != nil {
		return value, fmt.Errorf("broadcast an object: %w", err)
	}
	if c.Rank() != root {
		text = make([]byte, length)
	}
	if err := Broadcast(ctx, c, text, root); err != nil {
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

// broadcastLength tells how long root's object is; -1 stands for one that could not be encoded.
func broadcastLength(ctx context.Context, c *Comm, length int, wrong error, root int) (int, error) {
	n := []int64{int64(length)}
	if wrong != nil {
		n[0] = -1
	}
	if err := Broadcast(ctx, c, n, root); err != nil {
		return 0, err
	}
	return checkLength(n[0], root, wrong)
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
	texts, err := allGatherTexts(ctx, c, value)
	if err != nil {
		return nil, fmt.Errorf("gather objects: %w", err)
	}
	return decodeObjects[T](texts)
}

// GatherObject gives root all ranks' values, by rank, and the others nil.
func GatherObject[T any](ctx context.Context, c *Comm, value T, root int) ([]T, error) {
	text, wrong := json.Marshal(value)
	counts, err := gatherLengths(ctx, c, len(text), wrong)
	if err != nil {
		return nil, fmt.Errorf("gather objects: %w", err)
	}
	if c.Rank() != root {
		return nil, GatherV(ctx, c, nil, text, nil, root)
	}
	out := make([]byte, sum(counts))
	if err := GatherV(ctx, c, out, text, counts, root); err != nil {
		return nil, fmt.Errorf("gather objects: %w", err)
	}
	return decodeObjects[T](splitByCounts(out, counts))
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

func allGatherTexts[T any](ctx context.Context, c *Comm, value T) ([][]byte, error) {
	text, wrong := json.Marshal(value)
	counts, err := gatherLengths(ctx, c, len(text), wrong)
	if err != nil {
		return nil, err
	}
	out := make([]byte, sum(counts))
	if err := AllGatherV(ctx, c, out, text, counts); err != nil {
		return nil, err
	}
	return splitByCounts(out, counts), nil
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
		parts[i], text = text[:n], text[n:]
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
