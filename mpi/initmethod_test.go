package mpi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/testkit"
)

// TestInitMethod has ranks meet by each kind of init method, with their numbers in the method or in the configuration, and sum something.
func TestInitMethod(t *testing.T) {
	const size = 3
	free := net.JoinHostPort("127.0.0.1", testkit.FreePort(t, "127.0.0.1"))
	secret := auth.NewSecret()
	for name, test := range map[string]struct {
		method, listen string
		named          bool
	}{
		"tcp":             {method: "tcp://" + free},
		"tcp, in a word":  {method: "tcp://" + free, named: true},
		"tcp, an address": {method: "tcp://" + free, listen: "127.0.0.1"},
		"file":            {method: "file://" + filepath.Join(t.TempDir(), "store"), listen: "127.0.0.1", named: true},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for rank, err := range testkit.Each(size, func(rank int) error {
				method, cfg := test.method, InitConfig{Rank: rank, Size: size, Listen: test.listen, Run: "method", Attempt: 1,
					Secret: secret, Config: DefaultConfig()}
				if test.named {
					method += fmt.Sprintf("?rank=%d&world_size=%d", rank, size)
					cfg.Rank, cfg.Size = 0, 0
				}
				c, err := InitMethod(ctx, method, cfg)
				if err != nil {
					return err
				}
				sum := []int64{int64(c.Rank()) + 1}
				err = AllReduce(ctx, c, sum, Sum)
				if err == nil && (c.Rank() != rank || c.Size() != size || sum[0] != 1+2+3) {
					err = fmt.Errorf("it is rank %d of %d, and the sum %d", c.Rank(), c.Size(), sum[0])
				}
				return errors.Join(err, c.Close())
			}) {
				if err != nil {
					t.Errorf("rank %d: %v", rank, err)
				}
			}
		})
	}
}

func TestInitMethodSaysWhyItFails(t *testing.T) {
	secret := auth.NewSecret()
	for method, want := range map[string]string{
		"/scratch/store": "is not an init method",
		// a file does not show at which address the ranks can reach each other
		"file://" + filepath.Join(t.TempDir(), "store"): "Listen is not set",
	} {
		c, err := InitMethod(t.Context(), method, InitConfig{Size: 1, Secret: secret, Config: DefaultConfig()})
		if c != nil || err == nil || !strings.HasPrefix(err.Error(), "init by "+method+": ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", method, err, want)
		}
	}
}
