package ucxhost

import (
	"errors"
	"os"
	"testing"

	"ddpbatch/internal/clib"
)

// SetUp chooses how UCX sends in this process and its children, unless UCX_TLS is set, as by scripts/rdma-vm. It is for TestMain.
func SetUp() {
	if _, chosen := os.LookupEnv("UCX_TLS"); chosen {
		return
	}
	for name, value := range map[string]string{"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo", "UCX_WARN_UNUSED_ENV_VARS": "n"} {
		os.Setenv(name, value) // Go passes it on to C
	}
}

// Need skips the test if UCX is not installed. err is the error of ucx.Library.
func Need(t testing.TB, err error) {
	t.Helper()
	switch {
	case errors.Is(err, clib.ErrNotFound) || errors.Is(err, clib.ErrUnsupported):
		t.Skip(err)
	case err != nil:
		t.Fatal(err)
	}
}
