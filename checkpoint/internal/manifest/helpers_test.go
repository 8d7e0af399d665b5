package manifest

import (
	"fmt"
	"hash/crc32"
	"runtime"
	"strings"
	"testing"
)

// sealed adds the right checksum to a JSON object that is not closed yet, and closes it.
func sealed(body string) []byte {
	sum := crc32.Checksum([]byte(body), crc32.MakeTable(crc32.Castagnoli))
	return fmt.Appendf(nil, "%s,\n  \"crc32c\": \"%08x\"\n}\n", body, sum)
}

// changed replaces the first occurrence of old, which must be there.
func changed(t *testing.T, body, old, new string) string {
	t.Helper()
	got := strings.Replace(body, old, new, 1)
	if got == body {
		t.Fatal("the test changes nothing")
	}
	return got
}

// flipEveryBit calls parse with every variant of data in which one bit differs. parse must refuse all of them, and none as a newer format.
func flipEveryBit(t *testing.T, data []byte, parse func([]byte) error) {
	t.Helper()
	if err := parse(data); err != nil {
		t.Fatal(err)
	}
	for bit := range 8 * len(data) {
		data[bit/8] ^= 1 << (bit % 8)
		err := parse(data)
		if _, newer := err.(*Newer); err == nil || newer {
			t.Errorf("bit %d of byte %d: error %v", bit%8, bit/8, err)
		}
		data[bit/8] ^= 1 << (bit % 8)
	}
}

// allocated returns how many bytes a function allocates on the heap, including those that are freed again.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
