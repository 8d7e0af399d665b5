package ucxhost

import (
	"errors"
	"os"
	"testing"

	"ddpbatch/internal/clib"
)

// SetUp chooses how UCX sends in this process and its children, unless UCX_TLS says already how (scripts/rdma-vm does). It is for TestMain.
func SetUp() {
	if _, chosen := os.LookupEnv("UCX_TLS"); chosen {
		return
	}
	for name, value := range map[string]string{"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo", "UCX_WARN_UNUSED_ENV_VARS": "n"} {
		os.Setenv(name, value) // Go hands it on to C
	}
}

// Need skips the test where there is no UCX. err is that of ucx.Library.
func Need(t testing.TB, err error) {
	t.Helper()
	switch {
	case errors.Is(err, clib.ErrNotFound) || errors.Is(err, clib.ErrUnsupported):
		t.Skip(err)
	case err != nil:
		t.Fatal(err)
	}
}
