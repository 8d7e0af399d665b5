package ucx

import (
	"strconv"
	"sync"

	"ddpbatch/internal/clib"
)

// settings are variables of C's environment that are set for UCX before it is loaded. A user's own value stays, unless another
// value than ours would end the process. Messages shorter than UCX_RNDV_THRESH have arrived once they have been sent, whatever the
// other rank does. That holds for all messages that are copied.
var settings = []struct {
	name, value string
	forced      bool
}{
	{"UCX_HANDLE_ERRORS", "none", true}, // its handler of SIGSEGV would end a process in which Go recovers
	{"UCX_ERROR_SIGNALS", "", true},
	{"UCX_DEBUG_SIGNO", "0", true},    // its handler of SIGHUP would take the place of Go's, and run on a goroutine's stack
	{"UCX_LOG_FILE", "stderr", false}, // standard output is the user's
	{"UCX_RNDV_THRESH", strconv.Itoa(directMin), false},
}

// uncached makes UCX register memory without its cache, which does not notice what Go's runtime unmaps. A version that does not
// know a variable would print a warning.
func uncached(v Version) (name, value string) {
	if v.before(Version{Major: 1, Minor: 16}) {
		return "UCX_IB_REG_METHODS", "direct"
	}
	return "UCX_RCACHE_ENABLE", "n"
}

// Variable is a variable of the environment as UCX sees it, or "" if it is not set.
func Variable(name string) string { return clib.Getenv(name) }

// loadOnce loads the library, once in a process.
var loadOnce = sync.OnceValues(func() (lib *library, err error) {
	err = clib.WithoutSignals(func() error {
		for _, s := range settings {
			if err := clib.Setenv(s.name, s.value, s.forced); err != nil {
				return err
			}
		}
		if lib, err = load(); err != nil {
			return err
		}
		name, value := uncached(lib.version)
		return clib.Setenv(name, value, true)
	})
	return lib, err
})
