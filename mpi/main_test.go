package mpi

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"ddpbatch/internal/testkit"
)

// The variables that make the test binary run as one rank of a scenario.
const (
	scenarioVariable  = "MPI_TEST_SCENARIO"
	transportVariable = "MPI_TEST_TRANSPORT"
	timeoutVariable   = "MPI_TEST_TIMEOUT"
)

// scenarios are what a rank process does, once it has met the others.
var scenarios = map[string]func(ctx context.Context, c *Comm) error{
	"conform":  conformProcess,
	"handmade": handmadeProcess,
	"die":      dieProcess,
	"stop":     stopProcess,
	"start":    startProcess,
}

func TestMain(m *testing.M) {
	if name := os.Getenv(scenarioVariable); name != "" {
		if err := play(scenarios[name]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

func play(scenario func(ctx context.Context, c *Comm) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*testkit.Patience)
	defer cancel()
	cfg := DefaultConfig()
	cfg.Transport = os.Getenv(transportVariable)
	var err error
	if cfg.Timeout, err = time.ParseDuration(os.Getenv(timeoutVariable)); err != nil {
		return err
	}
	c, err := InitEnv(ctx, os.LookupEnv, cfg, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	return scenario(ctx, c)
}
