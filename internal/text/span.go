package text

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Span formats a duration for a column of a table, in its two largest units, rounded down: "8s", "12m40s", "3h05m", "2d04h". A negative one
// is "0s".
func Span(d time.Duration) string {
	seconds := max(0, int64(d/time.Second))
	switch minutes, hours, days := seconds/60, seconds/3600, seconds/86400; {
	case days > 0:
		return fmt.Sprintf("%dd%02dh", days, hours%24)
	case hours > 0:
		return fmt.Sprintf("%dh%02dm", hours, minutes%60)
	case minutes > 0:
		return fmt.Sprintf("%dm%02ds", minutes, seconds%60)
	}
	return fmt.Sprintf("%ds", seconds)
}

// ParseAge parses an age: days, "30d", or a duration of Go, "12h" or "90m". The result is never negative.
func ParseAge(words string) (time.Duration, error) {
	if days, isDays := strings.CutSuffix(words, "d"); isDays {
		n, err := strconv.ParseUint(days, 10, 16)
		if err != nil {
			return 0, fmt.Errorf("%s is not a number of days", Quoted(words, 40))
		}
		return time.Duration(n) * 24 * time.Hour, nil
	}
	d, err := time.ParseDuration(words)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%s is not a time such as 30d, 12h or 90m", Quoted(words, 40))
	}
	return d, nil
}
