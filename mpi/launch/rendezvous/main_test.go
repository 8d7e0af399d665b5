package rendezvous

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"ddpbatch/internal/rundir"
)

// claimSwitch is the environment variable that makes this program the process of TestMasterPortOfAnotherUser that claims a port.
const claimSwitch = "RENDEZVOUS_TEST_CLAIM"

func TestMain(m *testing.M) {
	if port, err := strconv.Atoi(os.Getenv(claimSwitch)); err == nil {
		_, err := claimPort("", port)
		fmt.Print(errors.Is(err, syscall.EADDRINUSE), err == nil)
		os.Exit(0)
	}
	syscall.Umask(0o022) // a folder of runs that the group may write to is refused
	goleak.VerifyTestMain(m)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// complete fills in the fields that package launch fills in for its callers.
func complete(c Config) Config {
	if c.Index < 0 {
		host, port, err := SplitEndpoint(c.Endpoint)
		if err != nil {
			panic(err)
		}
		c.MasterAddr, c.Ports = host, []int{port}
	}
	if c.MasterAddr == "" {
		c.MasterAddr = Loopback
	}
	if c.MinCount == 0 {
		c.MinCount = c.Count
	}
	if c.JoinTimeout == 0 {
		c.JoinTimeout = 5 * time.Minute
	}
	if c.LastCall == 0 {
		c.LastCall = 30 * time.Second
	}
	if c.Resolve == nil {
		c.Resolve = net.DefaultResolver.LookupNetIP
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// newRunDir makes a run directory whose first attempt is claimed.
func newRunDir(t *testing.T) *rundir.Dir {
	t.Helper()
	dir, err := rundir.Create(rundir.CreateConfig{
		Parent: t.TempDir(), Binary: "/bin/sh", Now: time.Now(),
		Spec: rundir.Spec{Name: "test", Kind: "simulate", Job: json.RawMessage("{}")},
	})
	must(t, err)
	_, err = dir.ClaimAttempt()
	must(t, err)
	return dir
}

// exchangeNothing is an exchange that passes no text.
func exchangeNothing(context.Context, string) (string, error) { return "", nil }

// unnoticed is a context whose Done channel never closes.
type unnoticed struct{ context.Context }

func (unnoticed) Done() <-chan struct{} { return nil }
