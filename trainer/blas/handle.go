//go:build !static && linux && (amd64 || arm64)

package blas

import (
	"bytes"

	"github.com/ebitengine/purego"
)

// handle is a loaded library.
type handle uintptr

// symbol returns an address, 0 where the library has no such name.
func (h handle) symbol(name string) uintptr {
	addr, err := purego.Dlsym(uintptr(h), name)
	if err != nil {
		return 0
	}
	return addr
}

// product returns the address of a product and the suffix that all names of this build have: none, or 64_ in
// some builds with integers of 64 bits. Whether integers have 32 or 64 bits does not matter here (arguments).
func (h handle) product(name string) (addr uintptr, suffix string) {
	for _, suffix := range []string{"", "64_"} {
		if addr := h.symbol(name + suffix); addr != 0 {
			return addr, suffix
		}
	}
	return 0, ""
}

// kind is a family of libraries, by the names of functions that only it has.
type kind struct {
	name     string
	config   string // char *config(void), or void config(char *, int) where filled is set
	filled   bool
	set, get string // threads: void set(int), int get(void)
	parallel string // int parallel(void): 0 where it was built for one thread
}

var kinds = []kind{
	{name: "OpenBLAS", config: "openblas_get_config", set: "openblas_set_num_threads", get: "openblas_get_num_threads", parallel: "openblas_get_parallel"},
	{name: "BLIS", config: "bli_info_get_version_str", set: "bli_thread_set_num_threads", get: "bli_thread_get_num_threads", parallel: "bli_info_get_enable_threading"},
	{name: "MKL", config: "MKL_Get_Version_String", filled: true, set: "MKL_Set_Num_Threads", get: "MKL_Get_Max_Threads"},
}

// kind returns what the library is, nil where it is none of kinds.
func (h handle) kind(suffix string) *kind {
	for i := range kinds {
		if h.symbol(kinds[i].config+suffix) != 0 {
			return &kinds[i]
		}
	}
	return nil
}

func (k *kind) version(h handle, suffix string) string {
	addr := h.symbol(k.config + suffix)
	if k.filled {
		var fill func(text *byte, size int32)
		purego.RegisterFunc(&fill, addr)
		text := make([]byte, 256)
		fill(&text[0], int32(len(text)))
		text, _, _ = bytes.Cut(text, []byte{0})
		return string(bytes.TrimSpace(text))
	}
	var config func() string
	purego.RegisterFunc(&config, addr)
	return config()
}

// threads sets the number of threads, and returns what the library then says, 0 where it says nothing.
func (k *kind) threads(h handle, suffix string, n int) int {
	set, get := h.symbol(k.set+suffix), h.symbol(k.get+suffix)
	if set == 0 || get == 0 {
		return 0
	}
	if k.serial(h, suffix) {
		return 1
	}
	var setThreads func(int64) // an int in OpenBLAS and MKL, 64 bits in BLIS: the same register
	purego.RegisterFunc(&setThreads, set)
	setThreads(int64(n))
	return max(int(number(get)), 0)
}

// serial tells whether the library was built for one thread.
func (k *kind) serial(h handle, suffix string) bool {
	parallel := h.symbol(k.parallel + suffix)
	return parallel != 0 && number(parallel) == 0
}

// number calls int f(void).
func number(addr uintptr) int32 {
	var f func() int32
	purego.RegisterFunc(&f, addr)
	return f()
}
