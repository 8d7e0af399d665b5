package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"ddpbatch/internal/testkit"
)

// TestMutationsWakeWaiters has a Get and a Wait wait for a key, and creates the key in every possible way.
func TestMutationsWakeWaiters(t *testing.T) {
	for name, mutate := range map[string]func(context.Context, Store) error{
		"set": func(ctx context.Context, s Store) error { return s.Set(ctx, "k", []byte("7")) },
		"add": func(ctx context.Context, s Store) error { _, err := s.Add(ctx, "k", 7); return err },
		"compareset": func(ctx context.Context, s Store) error {
			_, err := s.CompareSet(ctx, "k", nil, []byte("7"))
			return err
		},
		"append": func(ctx context.Context, s Store) error { return s.Append(ctx, "k", []byte("7")) },
		"multiset": func(ctx context.Context, s Store) error {
			return s.MultiSet(ctx, Item{"other", nil}, Item{"k", []byte("7")})
		},
	} {
		t.Run(name, func(t *testing.T) {
			forEachStore(t, func(t *testing.T, s Store, m *memory, prefix string) {
				ctx := bounded(t)
				var waits sync.WaitGroup
				waits.Go(func() {
					if got, err := s.Get(ctx, "k"); string(got) != "7" || err != nil {
						t.Errorf("get: %q, %v", got, err)
					}
				})
				waits.Go(func() {
					if err := s.Wait(ctx, "there", "k", "k"); err != nil {
						t.Errorf("wait: %v", err)
					}
				})
				if err := s.Set(ctx, "there", nil); err != nil {
					t.Fatal(err)
				}
				waits.Go(func() {
					if got, err := s.MultiGet(ctx, "k", "there"); err != nil || string(got[0]) != "7" || string(got[1]) != "" {
						t.Errorf("multiget: %q, %v", got, err)
					}
				})
				testkit.Eventually(t, "three calls wait for k", func() bool { return m.waiters(prefix+"k") == 3 })
				if err := mutate(ctx, s); err != nil {
					t.Fatal(err)
				}
				waits.Wait()
				if n := m.awaited(); n != 0 {
					t.Errorf("%d keys are still waited for", n)
				}
			})
		})
	}
}

func TestGetSeesKeyThatGoesAtOnce(t *testing.T) {
	forEachStore(t, func(t *testing.T, s Store, m *memory, prefix string) {
		ctx := bounded(t)
		got := make(chan string)
		go func() {
			value, err := s.Get(ctx, "k")
			got <- fmt.Sprint(string(value), err)
		}()
		testkit.Eventually(t, "a call waits for k", func() bool { return m.waiters(prefix+"k") == 1 })
		if err := errors.Join(m.Set(t.Context(), prefix+"k", []byte("short-lived")), drop(m.Delete(t.Context(), prefix+"k"))); err != nil {
			t.Fatal(err)
		}
		if text := <-got; text != "short-lived<nil>" {
			t.Errorf("got %s", text)
		}
	})
}

func drop(_ bool, err error) error { return err }

// TestWaitWantsAllAtOnce deletes a key before the last of the awaited keys is set, and checks that Wait waits for it again.
func TestWaitWantsAllAtOnce(t *testing.T) {
	forEachStore(t, func(t *testing.T, s Store, m *memory, prefix string) {
		ctx := bounded(t)
		done := make(chan error)
		go func() { done <- s.Wait(ctx, "a", "b") }()
		testkit.Eventually(t, "it waits for a", func() bool { return m.waiters(prefix+"a") == 1 })
		if err := s.Set(ctx, "a", nil); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, "it waits for b", func() bool { return m.waiters(prefix+"b") == 1 })
		if _, err := s.Delete(ctx, "a"); err != nil {
			t.Fatal(err)
		}
		if err := s.Set(ctx, "b", nil); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, "it waits for a again", func() bool { return m.waiters(prefix+"a") == 1 })
		if err := s.Set(ctx, "a", nil); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestWaitTakesManyKeys(t *testing.T) {
	forEachStore(t, func(t *testing.T, s Store, m *memory, prefix string) {
		ctx := bounded(t)
		if err := s.Wait(ctx); err != nil {
			t.Errorf("wait for nothing: %v", err)
		}
		keys := make([]string, MaxRequestKeys)
		for i := range keys {
			keys[i] = fmt.Sprint("rank/", i)
		}
		done := make(chan error)
		go func() { done <- s.Wait(ctx, keys...) }()
		for _, key := range keys {
			if err := m.Set(t.Context(), prefix+key, nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := s.Wait(ctx, append(keys, "more")...); !errors.Is(err, ErrTooLarge) {
			t.Errorf("one key more: %v", err)
		}
	})
}

func TestCancelledWaitSaysWhatIsMissing(t *testing.T) {
	forEachStore(t, func(t *testing.T, s Store, m *memory, prefix string) {
		if err := s.Set(bounded(t), "here", nil); err != nil {
			t.Fatal(err)
		}
		many := make([]string, 20)
		for i := range many {
			many[i] = fmt.Sprintf("many/%02d", i)
		}
		for _, c := range []struct {
			keys    []string
			blocked string
			call    func(context.Context) error
			missing []string
			absent  int
		}{
			{[]string{"gone"}, "gone", func(ctx context.Context) error { _, err := s.Get(ctx, "gone"); return err }, []string{"gone"}, 1},
			{[]string{"here", "b", "here", "c"}, "b", func(ctx context.Context) error { return s.Wait(ctx, "here", "b", "here", "c") },
				[]string{"b", "c"}, 2},
			{[]string{"here", "b"}, "b", func(ctx context.Context) error { _, err := s.MultiGet(ctx, "here", "b"); return err },
				[]string{"b"}, 1},
			{many, "many/00", func(ctx context.Context) error { return s.Wait(ctx, many...) }, many[:8], 20},
		} {
			ctx, cancel := context.WithCancelCause(context.Background())
			done := make(chan error)
			go func() { done <- c.call(ctx) }()
			testkit.Eventually(t, "the call waits", func() bool { return m.waiters(prefix+c.blocked) == 1 })
			cancel(errors.New("a cause of the caller's own"))
			err := <-done
			var wait *WaitError
			if !errors.As(err, &wait) || !errors.Is(err, context.Canceled) {
				t.Fatalf("error %v, want a WaitError and context.Canceled", err)
			}
			for i := range c.missing {
				if wait.Missing[i] != prefix+c.missing[i] || !strings.Contains(err.Error(), prefix+c.missing[i]+`"`) {
					t.Errorf("missing %q, error %q; want %q", wait.Missing, err, c.missing)
				}
			}
			if len(wait.Missing) != len(c.missing) || wait.Absent != c.absent || len(wait.Keys) != len(c.keys) {
				t.Errorf("%d missing, %d absent, %d keys; want %d, %d, %d",
					len(wait.Missing), wait.Absent, len(wait.Keys), len(c.missing), c.absent, len(c.keys))
			}
			testkit.Eventually(t, "nobody waits", func() bool { return m.awaited() == 0 })
		}
	})
}
