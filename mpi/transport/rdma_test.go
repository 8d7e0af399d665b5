package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/store"
	"ddpbatch/mpi/transport/ucx"
)

func TestMisfitIsTheFirstRankThatCannot(t *testing.T) {
	v := ucx.Version{Major: 1, Minor: 18, Release: 1}
	good := offer{Version: v, Transports: "verbs InfiniBand", Address: []byte{1}}
	patched, older, ethernet, without := good, good, good, offer{Why: "libucp.so.0: no such library"}
	patched.Version.Release, older.Version.Minor, ethernet.Transports = 9, 17, "verbs Ethernet"
	for name, c := range map[string]struct {
		offers []offer
		rank   int
		says   string // "": all fit
	}{
		"all":               {[]offer{good, good, patched}, 0, ""},
		"one without":       {[]offer{good, without, good}, 1, "libucp.so.0: no"},
		"rank 0 without":    {[]offer{without, good}, 0, "libucp.so.0: no"},
		"one older":         {[]offer{good, good, older}, 2, "its UCX is 1.17.1, but that of rank 0 is 1.18.1"},
		"one with Ethernet": {[]offer{good, ethernet}, 1, "verbs Ethernet, but that of rank 0 verbs InfiniBand"},
	} {
		rank, why := misfit(c.offers)
		if rank != c.rank || c.says == "" && why != "" || !strings.Contains(why, c.says) {
			t.Errorf("%s: rank %d, %q", name, rank, why)
		}
	}
}

// If no rank has a card, the log says so at level INFO, and if a rank has one, at level WARN. Both messages name a rank that cannot use
// UCX, and the network that carries the data.
func TestTransportWithoutUCXIsReported(t *testing.T) {
	none, down := offer{Why: "there is no device", NoDevice: true}, offer{Why: "mlx5_0:1 is not active (1: DOWN)"}
	for name, c := range map[string]struct {
		offers []offer
		want   []string
	}{
		"nobody has a card":        {[]offer{none, none}, []string{"INFO", "rank=0", `why="there is no device"`, "network=lo"}},
		"one has, and another not": {[]offer{down, none}, []string{"WARN", "rank=0", "1: DOWN"}},
	} {
		log := new(testkit.Journal)
		r := &connector{cfg: Config{Log: log.Logger(), Listen: "127.0.0.1"}}
		rank, why := misfit(c.offers)
		if err := r.withoutUCX(c.offers, rank, why); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, text := range c.want {
			if !strings.Contains(log.String(), text) {
				t.Errorf("%s: it does not say %s: %s", name, text, log)
			}
		}
		r.cfg.UCX = UCXAlways
		if err := r.withoutUCX(c.offers, rank, why); err == nil || !strings.Contains(err.Error(), "rank 0: "+why) {
			t.Errorf("%s: where UCX is wanted: %v", name, err)
		}
	}
}

// If the ranks insist on UCX and encryption, which exclude each other, all ranks get an error.
func TestEncryptionIsNotByUCX(t *testing.T) {
	errs := connectAnyhow(t, 3, func(c *Config) { c.Sharing, c.UCX, c.Encrypt = ShareNever, UCXAlways, true })
	for rank, err := range errs {
		if err == nil || !strings.Contains(err.Error(), "use UCX: rank 0: mpi.encrypt is true") {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// Ranks that differ in UCX have different bindings, so their handshakes fail (TestEncryptDiffers).
func TestRanksThatDifferInUCXAreRefused(t *testing.T) {
	seen := map[string]UCX{}
	for _, u := range []UCX{UCXWhereItWorks, UCXNever, UCXAlways} {
		role := Config{UCX: u}.binding().Role
		if other, found := seen[role]; found {
			t.Errorf("%d and %d are both %q", u, other, role)
		}
		seen[role] = u
	}
}

// connectAnyhow is connectRanks for ranks that may fail.
func connectAnyhow(t *testing.T, size int, change func(*Config)) []error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	dir := store.NewMemory()
	return testkit.Each(size, func(rank int) error {
		cfg := testConfig(dir, rank, size)
		change(&cfg)
		fabric, err := Connect(ctx, cfg)
		if err == nil {
			fabric.Close()
		}
		return err
	})
}

// Every rank gets the words of all other ranks, whatever their lengths.
func TestExchangeGivesTheWordsOfAll(t *testing.T) {
	const size = 4
	connectors := make([]*connector, size)
	dir := store.NewMemory()
	word := func(rank int) []byte { return bytes.Repeat([]byte{byte(rank)}, rank*rank*3000) }
	errs := testkit.Each(size, func(rank int) error {
		pipe, err := newWakePipe()
		if err != nil {
			return err
		}
		defer pipe.close()
		cfg, err := testConfig(dir, rank, size).complete()
		if err != nil {
			return err
		}
		c, err := connectAll(t.Context(), cfg, pipe)
		if err != nil {
			return err
		}
		connectors[rank] = c
		for round := range 2 {
			words, err := c.exchange(t.Context(), word(rank))
			if err != nil {
				return err
			}
			for from, got := range words {
				if !bytes.Equal(got, word(from)) {
					return fmt.Errorf("round %d: %d bytes of rank %d", round, len(got), from)
				}
			}
		}
		_, err = c.exchange(t.Context(), make([]byte, maxWord+1))
		if err == nil || !strings.Contains(err.Error(), "at most 32768 bytes") {
			return fmt.Errorf("a word that is too long: %v", err)
		}
		return nil
	})
	for _, c := range connectors {
		if c != nil {
			c.closeAll()
		}
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// An exchange ends if its context ends, or if a rank ends before it has sent its word.
func TestExchangeEndsWithItsContext(t *testing.T) {
	connectors := make([]*connector, 2)
	dir := store.NewMemory()
	errs := testkit.Each(2, func(rank int) error {
		pipe, err := newWakePipe()
		if err != nil {
			return err
		}
		defer pipe.close()
		cfg, err := testConfig(dir, rank, 2).complete()
		if err != nil {
			return err
		}
		connectors[rank], err = connectAll(t.Context(), cfg, pipe)
		return err
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := connectors[0].exchange(ctx, []byte("x"))
		done <- err
	}()
	cancel()
	testkit.Within(t, testkit.Patience, func() {
		if err := <-done; err == nil || !strings.Contains(err.Error(), "rank 1") {
			t.Error(err)
		}
	})
	connectors[0].closeAll()
	_, err := connectors[1].exchange(t.Context(), nil) // rank 0 may have sent this word
	if err == nil {
		_, err = connectors[1].exchange(t.Context(), nil)
	}
	if err == nil {
		t.Error("a rank that is gone has said two words")
	}
	connectors[1].closeAll()
}

// Only UCX has memory of its own for Alloc and Register, from which its links send.
func TestOnlyUCXHasMemoryOfItsOwn(t *testing.T) {
	var none *Sockets
	for name, s := range map[string]*Sockets{"no sockets": none, "tcp": connectRanks(t, 2, share(ShareNever))[0]} {
		memory, err := s.Alloc(100)
		theirs, registerErr := s.Register(make([]byte, 100), func() { t.Errorf("%s: it has released what it did not take", name) })
		if memory != nil || err != nil || theirs || registerErr != nil || s.UsesUCX() || s.Network() != "" {
			t.Errorf("%s: %d bytes, %v, %v, %v", name, len(memory), err, theirs, registerErr)
		}
	}
	fabrics := kinds["ucx"](t, 2)
	s := fabrics[0].(*Sockets)
	memory, err := s.Alloc(100)
	if len(memory) != 100 || err != nil || !s.UsesUCX() || !strings.HasPrefix(s.Network(), "UCX 1.") {
		t.Errorf("%d bytes, %v, %q", len(memory), err, s.Network())
	}
}
