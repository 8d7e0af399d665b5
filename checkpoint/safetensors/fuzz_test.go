package safetensors

import (
	"bytes"
	"runtime"
	"testing"

	"ddpbatch/checkpoint"
)

// hostileLimit is what a hostile file of 1 KiB may cost (issue D).
const hostileLimit = 64 << 20

// FuzzSafetensors: no file may panic, allocate much or give more bytes than it has, and what is read and written again reads the same.
func FuzzSafetensors(f *testing.F) {
	f.Add(file(`{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 1, 2, 3, 4))
	f.Add(file(`{"__metadata__":{"a":"b"},"\u0041":{"dtype":"BF16","shape":[2,0],"data_offsets":[0,0]}}`))
	f.Add(file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},"b":{"dtype":"I8","shape":[],"data_offsets":[0,1]}}  `, 1, 2))
	f.Fuzz(func(t *testing.T, data []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		tensors, metadata, err := readAll(data)
		runtime.ReadMemStats(&after)
		if cost := after.TotalAlloc - before.TotalAlloc; cost > hostileLimit {
			t.Fatalf("%d bytes cost %d bytes of allocations", len(data), cost)
		}
		if err != nil {
			return
		}
		total := 0
		var sources []Source
		for _, tensor := range tensors {
			total += len(tensor.Data)
			if tensor.DType == "" || tensor.Name == metadataKey {
				return // not ours to write
			}
			sources = append(sources, Source{Name: tensor.Name, DType: tensor.DType, Shape: tensor.Shape})
		}
		if total > len(data) {
			t.Fatalf("%d bytes of tensors in a file of %d", total, len(data))
		}
		parts, err := inOrder(sources)
		if err != nil {
			t.Fatal(err)
		}
		again, err := encodeHeader(parts, metadata)
		if err != nil {
			t.Fatal(err)
		}
		byName := map[string]checkpoint.Tensor{}
		for _, tensor := range tensors {
			byName[tensor.Name] = tensor
		}
		for _, p := range parts {
			again = append(again, byName[p.Name].Data...)
		}
		second, _, err := readAll(again)
		if err != nil || len(second) != len(tensors) {
			t.Fatalf("%q does not read again: %v", again, err)
		}
		for _, tensor := range second {
			if !bytes.Equal(tensor.Data, byName[tensor.Name].Data) {
				t.Fatalf("tensor %q changed", tensor.Name)
			}
		}
	})
}
