package text

import (
	"fmt"
	"time"
)

// Span is a length of time for a column of a table, in its two largest units, rounded down: "8s", "12m40s", "3h05m", "2d04h". One below zero
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
