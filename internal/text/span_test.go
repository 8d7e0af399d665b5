package text

import (
	"testing"
	"time"
)

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Hour: "0s", 0: "0s", 999 * time.Millisecond: "0s", 8 * time.Second: "8s", time.Minute: "1m00s",
		12*time.Minute + 40*time.Second: "12m40s", time.Hour - time.Second: "59m59s", 3*time.Hour + 5*time.Minute: "3h05m",
		24 * time.Hour: "1d00h", 52*time.Hour + 59*time.Minute: "2d04h", 400 * 24 * time.Hour: "400d00h",
	} {
		if got := Span(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

func TestParseAge(t *testing.T) {
	for words, want := range map[string]time.Duration{"30d": 30 * 24 * time.Hour, "0d": 0, "0": 0, "12h": 12 * time.Hour,
		"1h30m": 90 * time.Minute} {
		if got, err := ParseAge(words); err != nil || got != want {
			t.Errorf("%s: %v, %v; want %v", words, got, err, want)
		}
	}
	for _, words := range []string{"", "d", "-1d", "-1h", "99999999d", "1.5d", "soon", "30"} {
		if got, err := ParseAge(words); err == nil {
			t.Errorf("%q: %v", words, got)
		}
	}
}
