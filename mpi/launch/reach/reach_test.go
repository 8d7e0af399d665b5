package reach

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"

	"ddpbatch/internal/auth"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// machine has the interfaces of a cluster's node, some of which should not be offered.
func machine() []Interface {
	prefix := func(list ...string) (out []netip.Prefix) {
		for _, s := range list {
			out = append(out, netip.MustParsePrefix(s))
		}
		return out
	}
	return []Interface{
		{Name: "lo", Up: true, Loopback: true, Addrs: prefix("127.0.0.1/8", "::1/128")},
		{Name: "docker0", Up: true, Addrs: prefix("172.17.0.1/16")},
		{Name: "eth0", Up: true, Addrs: prefix("fd00:1::5/64", "10.1.0.5/16", "fe80::1/64")},
		{Name: "eth1", Addrs: prefix("10.9.0.5/16")},
		{Name: "ib0", Up: true, Addrs: prefix("192.168.7.5/24")},
		{Name: "ib1", Up: true, Addrs: prefix("192.168.8.5/24")},
		{Name: "wild0", Up: true, Addrs: prefix("169.254.3.4/16")},
	}
}

func TestAddresses(t *testing.T) {
	for spec, want := range map[string]string{
		"":                            "10.1.0.5 192.168.7.5 192.168.8.5 fd00:1::5",
		"ib":                          "192.168.7.5 192.168.8.5",
		"=ib1":                        "192.168.8.5",
		"ib0":                         "192.168.7.5",
		"ib1,eth":                     "10.1.0.5 192.168.8.5 fd00:1::5",
		"=eth0,ib1":                   "10.1.0.5 192.168.8.5 fd00:1::5",
		"192.168.0.0/16":              "192.168.7.5 192.168.8.5",
		"192.168.7.9/24":              "192.168.7.5",
		"10.1.0.5":                    "10.1.0.5",
		"fd00::/16":                   "fd00:1::5",
		"^ib":                         "10.1.0.5 172.17.0.1 fd00:1::5",
		"^docker,ib,eth0":             "",
		"^=ib0,docker":                "10.1.0.5 172.17.0.1 192.168.8.5 fd00:1::5", // "=" at the front makes all names exact: docker0 stays
		"^10.0.0.0/8,docker,fd00::/8": "192.168.7.5 192.168.8.5",
		"docker0":                     "172.17.0.1",
		"eth1":                        "",
		"lo":                          "",
		"nothing":                     "",
	} {
		choice, err := ParseInterface(spec)
		if err != nil {
			t.Errorf("%q: %v", spec, err)
			continue
		}
		addrs, err := choice.Addresses(machine())
		var words []string
		for _, a := range addrs {
			words = append(words, a.String())
		}
		slices.Sort(words)
		sorted := strings.Fields(want)
		slices.Sort(sorted)
		if !slices.Equal(words, sorted) || (want == "") != (err != nil) {
			t.Errorf("%q allows %q, want %q (error: %v)", spec, words, sorted, err)
		}
		if err != nil && (!strings.Contains(err.Error(), "eth1 10.9.0.5/16 (down)") || !strings.Contains(err.Error(), spec)) {
			t.Errorf("%q: the error does not say what there is: %v", spec, err)
		}
	}
}

// Addresses are in the order of the interfaces, but IPv6 addresses come last.
func TestIPv6ComesLast(t *testing.T) {
	addrs, err := Choice{}.Addresses(machine())
	if err != nil || len(addrs) != 4 || addrs[0].String() != "10.1.0.5" || addrs[3].String() != "fd00:1::5" {
		t.Errorf("%v, %v", addrs, err)
	}
}

func TestNames(t *testing.T) {
	for spec, want := range map[string]string{"": "eth0 ib0 ib1", "=ib1": "ib1", "10.0.0.0/8": "eth0",
		"^ib": "docker0 eth0", "nothing": ""} {
		choice, err := ParseInterface(spec)
		if got := strings.Join(choice.Names(machine()), " "); err != nil || got != want {
			t.Errorf("%q allows %q, want %q (%v)", spec, got, want, err)
		}
	}
}

// TestForbids checks that only networks in a specification, and addresses after ^, forbid addresses of another machine.
func TestForbids(t *testing.T) {
	for _, c := range []struct {
		spec, addr string
		want       bool
	}{
		{"", "10.1.0.7", false}, {"ib0", "10.1.0.7", false}, {"10.1.0.0/16", "10.1.0.7", false}, {"10.2.0.0/16", "10.1.0.7", true},
		{"10.2.0.0/16", "::ffff:10.1.0.7", true}, {"10.2.0.0/16", "fd00::1", true}, {"10.2.0.0/16,10.1.0.0/16", "10.1.0.7", false},
		{"10.2.0.0/16,ib0", "10.1.0.7", false},
		{"10.1.0.5", "10.1.0.7", false}, // an address of this machine (--local-addr)
		{"^10.1.0.0/16", "10.1.0.7", true}, {"^10.1.0.7", "10.1.0.7", true}, {"^docker", "10.1.0.7", false},
		{"^10.2.0.0/16", "10.1.0.7", false},
	} {
		choice, err := ParseInterface(c.spec)
		if got := choice.Forbids(netip.MustParseAddr(c.addr)); err != nil || got != c.want {
			t.Errorf("%q forbids %s: %t, %v", c.spec, c.addr, got, err)
		}
	}
}

func TestParseInterfaceRefuses(t *testing.T) {
	for _, spec := range []string{"^", "=", "ib0,", ",", "a b", "10.1.0.0/99", "=10.0.0.0/8", "averyveryverylongname",
		"ib0,^eth0", "ib:0", "x\ny"} {
		if c, err := ParseInterface(spec); err == nil {
			t.Errorf("%q is read as %+v", spec, c)
		}
	}
}

func TestNameOf(t *testing.T) {
	for addr, want := range map[string]string{"192.168.7.5": "ib0", "::ffff:10.1.0.5": "eth0", "10.1.0.6": "", "fe80::1%eth0": "eth0"} {
		if got := NameOf(machine(), netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s is on %q, want %q", addr, got, want)
		}
	}
}

// TestInterfacesAreReal checks that this machine has a loopback interface, at least.
func TestInterfacesAreReal(t *testing.T) {
	interfaces, err := Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	if name := NameOf(interfaces, netip.MustParseAddr("127.0.0.1")); name == "" {
		t.Errorf("no interface has 127.0.0.1: %+v", interfaces)
	}
}

var errBusy = errors.New("somebody else answers")

// If all addresses lead to agent 0, the first one wins, even if its answer takes a while.
func TestRaceTakesTheFirstThatLeadsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		race := NewRace([]string{"a", "b", "c"}, HeadStart)
		got, err := race.Run(t.Context(), func(ctx context.Context, addr string) error { return wait(ctx, HeadStart/2) })
		if tries := race.Tries(); got != "a" || err != nil || tries[0].Count != 1 || tries[0].Took != HeadStart/2 || tries[1].Count != 0 {
			t.Errorf("%q, %+v, %v", got, tries, err)
		}
	})
}

// A silent address delays the next one only by its head start. An address where another program answers does not delay it at all.
func TestRacePassesASilentAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		race := NewRace([]string{"silent", "other", "right"}, HeadStart)
		got, err := race.Run(t.Context(), func(ctx context.Context, addr string) error {
			switch addr {
			case "silent":
				return wait(ctx, time.Hour)
			case "other":
				return errBusy
			}
			return nil
		})
		if got != "right" || err != nil || time.Since(begun) != HeadStart {
			t.Errorf("%q after %v, %v", got, time.Since(begun), err)
		}
		if tries := race.Tries(); tries[1].Count != 1 || tries[1].Err != errBusy.Error() || tries[2].Err != "" {
			t.Errorf("%+v", tries)
		}
	})
}

// Without a head start, all addresses are tried at once. The caller closes what tries that succeed too late have opened.
func TestRaceWithoutAHeadStartTriesAllAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var proved atomic.Int32
		got, err := NewRace([]string{"a", "b", "c"}, 0).Run(t.Context(), func(ctx context.Context, addr string) error {
			if addr == "c" {
				return wait(ctx, time.Millisecond)
			}
			<-ctx.Done()
			proved.Add(1)
			return nil // it does not look at ctx
		})
		if got != "c" || err != nil || proved.Load() != 2 {
			t.Errorf("%q, %v, and %d others", got, err, proved.Load())
		}
	})
}

// Addresses are tried again until agent 0 answers, because it may start later than the others.
func TestRaceWaitsForALateAgent0(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		got, err := NewRace([]string{"a"}, HeadStart).Run(t.Context(), func(context.Context, string) error {
			if calls.Add(1) < 100 {
				return errBusy
			}
			return nil
		})
		if got != "a" || err != nil || calls.Load() != 100 {
			t.Errorf("%q after %d calls, %v", got, calls.Load(), err)
		}
	})
}

// TestRaceSparesStrangers checks the pause after another job's store has answered. That job logs each try.
func TestRaceSparesStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		race := NewRace([]string{"a"}, HeadStart)
		_, err := race.Run(ctx, func(context.Context, string) error { return fmt.Errorf("handshake: %w", auth.ErrRefused) })
		if n := race.Tries()[0].Count; err == nil || n > 1+int(time.Minute/unprovedPause) {
			t.Errorf("tried %d times in a minute, %v", n, err)
		}
	})
}

// A final error at one address ends the race. Tries lists all tries.
func TestRaceEndsAtAFinalError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		race := NewRace([]string{"a", "b"}, 0)
		_, err := race.Run(t.Context(), func(_ context.Context, addr string) error {
			if addr == "a" {
				return errBusy
			}
			return Final(auth.ErrRefused)
		})
		tries := race.Tries()
		if !errors.Is(err, auth.ErrRefused) || !strings.HasPrefix(err.Error(), "b: ") || tries[1].Count != 1 ||
			tries[1].Err != auth.ErrRefused.Error() {
			t.Errorf("%v, %+v", err, tries)
		}
	})
}

func TestRaceSaysWhatWasTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := errors.New("five minutes are over")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 5*time.Minute, late)
		defer cancel()
		race := NewRace([]string{"silent", "other"}, HeadStart)
		_, err := race.Run(ctx, func(ctx context.Context, addr string) error {
			if addr == "other" {
				return errBusy
			}
			return wait(ctx, time.Hour)
		})
		tries := race.Tries()
		least := int(5 * time.Minute / lastPause)
		if !errors.Is(err, late) || tries[0].Count != 0 || tries[1].Count < least || tries[1].Count > 3*least ||
			tries[1].Err != errBusy.Error() {
			t.Errorf("%+v, %v", tries, err)
		}
		text := Matrix([]AgentTries{{From: "n2", Tries: tries}, {From: "n3"}})
		for _, want := range []string{"FROM", "n2    silent", "no answer", errBusy.Error(), "nothing is known"} {
			if !strings.Contains(text, want) {
				t.Errorf("%q is not in\n%s", want, text)
			}
		}
	})
	if _, err := NewRace(nil, 0).Run(t.Context(), nil); err == nil {
		t.Error("one of no addresses was picked")
	}
}

// TestMatrixKeepsItsLines checks that texts from other machines cannot control the terminal.
func TestMatrixKeepsItsLines(t *testing.T) {
	text := Matrix([]AgentTries{{From: "n\x1b[2J\n2", Tries: []Try{{Addr: "a\tb", Count: 1, Err: strings.Repeat("x\xff\r", 1000)}}}})
	if strings.ContainsAny(text, "\x1b\r\t") || !utf8.ValidString(text) || strings.Count(text, "\n") != 1 || len(text) > 1000 {
		t.Errorf("%d bytes: %.300q", len(text), text)
	}
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func FuzzParseInterface(f *testing.F) {
	f.Add("^=ib0,10.0.0.0/8")
	f.Fuzz(func(t *testing.T, spec string) {
		if c, err := ParseInterface(spec); err == nil {
			c.Addresses(machine())
		}
	})
}
