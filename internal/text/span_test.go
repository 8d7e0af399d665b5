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
