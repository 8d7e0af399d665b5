//go:build race

package element

import (
	"runtime"
	"unsafe"
)

// reads and writes tell the race detector what assembly does: it sees only
// what Go's compiler made.

func reads(b []byte)  { runtime.RaceReadRange(unsafe.Pointer(&b[0]), len(b)) }
func writes(b []byte) { runtime.RaceWriteRange(unsafe.Pointer(&b[0]), len(b)) }
