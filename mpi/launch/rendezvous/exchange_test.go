package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// Whatever text Exchange returns, a faulty one is refused, and the error does not show the secret in it.
func TestHostileTextByExchangeIsRefused(t *testing.T) {
	const run, secret = "test/1", "00000000000000000000000000000000000000000000000000000000000000aa"
	for _, tc := range []struct{ text, want string }{
		{"", "cannot be read"},
		{"\x00\xff", "cannot be read"},
		{strings.Repeat("[", MaxOffer), "cannot be read"},
		{strings.Repeat(" ", MaxOffer+1), "766 bytes"},
		{`{"run":"test/1","port":"x` + secret + `"}`, "cannot be read"},
		{`{"run":"other"}`, `it is for run "other"`},
		{`{"run":"test/1","port":0,"addrs":["10.0.0.1"]}`, "port 0"},
		{`{"run":"test/1","port":65536,"addrs":["10.0.0.1"]}`, "port 65536"},
		{`{"run":"test/1","port":7,"secret":"` + secret + `"}`, "0 addresses"},
		{`{"run":"test/1","port":7,"addrs":[` + strings.TrimSuffix(strings.Repeat(`"::2",`, 99), ",") + `]}`, "99 addresses"},
		{`{"run":"test/1","port":7,"addrs":["n1"]}`, "cannot be read"},
		{`{"run":"test/1","port":7,"addrs":[""],"secret":"` + secret + `"}`, "not an address of another node"},
		{`{"run":"test/1","port":7,"addrs":["0.0.0.0"],"secret":"` + secret + `"}`, "not an address of another node"},
		{`{"run":"test/1","port":7,"addrs":["127.0.0.1"],"secret":"` + secret + `"}`, "127.0.0.1 is not an address of another node"},
		{`{"run":"test/1","port":7,"addrs":["::ffff:127.0.0.1"],"secret":"` + secret + `"}`, "not an address of another node"},
		{`{"run":"test/1","port":7,"addrs":["fe80::1%eth0"],"secret":"` + secret + `"}`, "not an address of another node"},
		{`{"run":"test/1","port":7,"addrs":["224.0.0.1"],"secret":"` + secret + `"}`, "not an address of another node"},
		{`{"run":"test/1","port":7,"addrs":["10.0.0.1"]}`, "agent 0 was given the run's secret, and this agent was not"},
		{`{"run":"test/1","port":7,"addrs":["10.0.0.1"],"secret":"x"}`, "parse a secret"},
		{`{"run":"test/1","refused":{"cause":"start","exit":1,"message":"agent 0 on n1 cannot take part: no"}}`,
			"agent 0 on n1 cannot take part: no"},
	} {
		c := Config{
			World:     World{Index: 1, Count: 2, Host: "n2"},
			Identity:  Identity{RunID: run},
			Admission: Admission{JoinTimeout: time.Minute},
		}
		c.Exchange = func(context.Context, string) (string, error) { return tc.text, nil }
		_, err := c.receiveOffer(t.Context())
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "aa") {
			t.Errorf("%.90q: %v, want %q", tc.text, err, tc.want)
		}
	}
	c := Config{World: World{Index: 1, Host: "n2"}, Admission: Admission{JoinTimeout: time.Minute}}
	c.Exchange = func(context.Context, string) (string, error) { return "", errors.New("the plugin is odd") }
	if _, err := c.receiveOffer(t.Context()); err == nil ||
		!strings.Contains(err.Error(),
			"agent 1 on n2 cannot learn from Slurm's PMI-2 where agent 0 is (srun --mpi=none does not use PMI-2): the plugin is odd") {
		t.Errorf("error is %v", err)
	}
}

// An offer fits however many addresses agent 0 has, and it contains the first ones, which are the likeliest to work.
func TestOfferFits(t *testing.T) {
	var o offer
	o.Run, o.Port, o.Secret = "cluster/123456789.0.0", 65535, strings.Repeat("a", 64)
	for i := range 200 {
		o.Addrs = append(o.Addrs, netip.MustParseAddr(fmt.Sprintf("fd00:1234:5678:9abc:def0::%x", i+1)))
	}
	text, err := o.encode()
	must(t, err)
	got, err := parseOffer(text)
	if n := len(got.Addrs); err != nil || len(text) > MaxOffer || n < 10 || n > maxOffered || got.Addrs[0] != o.Addrs[0] ||
		got.Secret != o.Secret || got.Port != o.Port {
		t.Errorf("%d bytes: %s, %v", len(text), text, err)
	}
	text, err = offer{Run: "r", Rejected: &Rejection{Message: strings.Repeat("\x00no ", 1000)}}.encode()
	if err != nil || len(text) > MaxOffer || !strings.Contains(text, "no ") {
		t.Errorf("%d bytes: %s, %v", len(text), text, err)
	}
	if text, err := (offer{Run: strings.Repeat("r", MaxOffer)}).encode(); err == nil {
		t.Errorf("%d bytes are told", len(text))
	}
}

func FuzzOffer(f *testing.F) {
	f.Add(`{"run":"test/1","port":7,"addrs":["10.0.0.1"],"secret":"00000000000000000000000000000000000000000000000000000000000000aa"}`)
	c := Config{
		World:     World{Index: 1, Count: 2, Host: "n2"},
		Identity:  Identity{RunID: "test/1"},
		Admission: Admission{JoinTimeout: time.Minute},
	}
	f.Fuzz(func(t *testing.T, text string) {
		c.Exchange = func(context.Context, string) (string, error) { return text, nil }
		o, err := c.receiveOffer(context.Background())
		if err != nil {
			return
		}
		for _, addr := range o.Addrs {
			if !addr.IsValid() || addr.IsLoopback() || addr.IsUnspecified() {
				t.Errorf("%q leads to %v", text, addr)
			}
		}
		if _, err := o.encode(); err != nil {
			t.Errorf("%q is taken and cannot be told: %v", text, err)
		}
	})
}
