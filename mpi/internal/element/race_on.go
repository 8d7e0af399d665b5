//go:build race

package element

import (
	"runtime"
	"unsafe"
)

// reads and writes report to the race detector what assembly reads and writes: it only sees code that Go's compiler generated.

func reads(b []byte)  { runtime.RaceReadRange(unsafe.Pointer(&b[0]), len(b)) }
func writes(b []byte) { runtime.RaceWriteRange(unsafe.Pointer(&b[0]), len(b)) }
