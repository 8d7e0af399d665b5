package collbench

import (
	"strings"
	"testing"
)

// A heading names the settings of the rows below it.
func TestSettingsSayHowRowsCome(t *testing.T) {
	for name, want := range map[string]string{
		"startup": "", "store": "", "pingpong": ", transport tcp", "broadcast": ", transport tcp, algorithm star",
		"allreduce": ", transport tcp, algorithm star, deterministic",
	} {
		o := Options{collective: collectiveNamed(name), Transport: "tcp", Algorithm: "star", Deterministic: true}
		if got := o.settings(); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestParseBytes(t *testing.T) {
	for text, want := range map[string]int64{
		"1": 1, "4": 4, "64K": 65536, "64k": 65536, "1M": 1 << 20, "2g": 2 << 30, "64G": 1 << 36,
		"": 0, "K": 0, "0": 0, "-4": 0, "4T": 0, "1.5M": 0, "65G": 0, "9223372036854775807": 0,
		"9223372036854775807G": 0, "4 K": 0, "4KK": 0,
	} {
		got, err := ParseBytes("-b", text)
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
		if err != nil && !strings.HasPrefix(err.Error(), "-b is ") {
			t.Errorf("%q: the error does not name the flag: %v", text, err)
		}
	}
}

func TestCollectiveNamed(t *testing.T) {
	for name, want := range map[string]string{"allreduce": "allreduce", "all_reduce": "allreduce", "all-reduce": "allreduce",
		"reduce_scatter": "reducescatter", "sendrecv": "pingpong"} {
		if c := collectiveNamed(name); c == nil || c.name != want {
			t.Errorf("%s: %v, want %s", name, c, want)
		}
	}
	if c := collectiveNamed("allredoce"); c != nil {
		t.Errorf("allredoce is taken for %s", c.name)
	}
}
