// Package clib loads C libraries while the program runs, and calls them without cgo.
//
//	library, err := clib.Open("libucp.so.0")
//	...
//	get := library.Symbol("ucp_get_version")
//	version := clib.New[[3]uint32]()
//	clib.New[clib.Call]().Do(get, clib.Address(&version[0]), clib.Address(&version[1]), clib.Address(&version[2]))
//	runtime.KeepAlive(version)
//
// It loads by github.com/ebitengine/purego and calls by assembly of its own (docs/adr/0008-blas-at-run-time.md). Built with
// -tags static, or for anything but Linux on amd64 and arm64, it has no libraries: Open returns [ErrUnsupported].
//
// A library's threads must not run Go's signal handlers, which need a stack of Go's: load it, and start what starts its threads,
// inside of [WithoutSignals].
package clib
