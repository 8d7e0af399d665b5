package data

import (
	"os"
	"runtime"
	"strings"
	"testing"

	"ddpbatch/internal/testkit"
)

// A mapped file stays while its data set is read, and goes when nobody has the data set any more.
func TestMappingLastsAsLongAsItsDataSet(t *testing.T) {
	path := writeFile(t, "a text of this test alone", []byte(strings.Repeat("text", 1<<18)))
	mapped := func() bool {
		maps, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Skipf("needs /proc to see what is mapped: %v", err)
		}
		return strings.Contains(string(maps), path)
	}
	set, err := OpenText(t.Context(), nil, path, 1<<10)
	if err != nil {
		t.Fatal(err)
	}
	x, labels := make([]float32, 1<<10), make([]int, 1<<10)
	for i := range set.Len() {
		if i%100 == 0 {
			runtime.GC()
		}
		if set.Read(i, x, nil, labels); x[0] != 't' || labels[0] != 'e' {
			t.Fatalf("row %d begins with %v", i, x[0])
		}
	}
	if !mapped() {
		t.Error("the file is not mapped while its data set is in use")
	}
	runtime.KeepAlive(set)
	set = nil
	testkit.Eventually(t, "the file is unmapped", func() bool {
		runtime.GC()
		return !mapped()
	})
}
