// Package clib loads C libraries while the program runs, and calls them without cgo.
//
//	library, err := clib.Open("libucp.so.0")
//	...
//	get := library.Symbol("ucp_get_version")
//	version := clib.New[[3]uint32]()
//	clib.New[clib.Call]().Do(get, clib.Address(&version[0]), clib.Address(&version[1]), clib.Address(&version[2]))
//	runtime.KeepAlive(version)
//
// It loads libraries with github.com/ebitengine/purego and calls functions with assembly of its own (docs/adr/0008-blas-at-run-time.md).
// Built with -tags static, or for anything but Linux on amd64 and arm64, it cannot load libraries: Open returns [ErrUnsupported].
//
// A library's threads must not run Go's signal handlers, which need a stack of Go's: load the library, and call the functions that start
// its threads, inside [WithoutSignals].
package clib
