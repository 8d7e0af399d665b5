package slurm

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Unlimited is the time limit that Slurm writes UNLIMITED: longer than any other.
const Unlimited = time.Duration(math.MaxInt64)

// maxSeconds is the longest limit Slurm can hold, some 68 years: it computes in 32-bit seconds
// (and wraps round silently beyond).
const maxSeconds = math.MaxInt32

// ParseTime reads a time as sbatch(1) describes --time: "minutes", "minutes:seconds",
// "hours:minutes:seconds", "days-hours", "days-hours:minutes" and "days-hours:minutes:seconds", and
// UNLIMITED or INFINITE, in any case, which are [Unlimited]. As in Slurm no field has an upper
// bound of its own: "90:00" is an hour and a half.
//
// Note that sbatch takes a limit of zero for "no limit", and rounds seconds up to a minute;
// ParseTime does neither.
func ParseTime(s string) (time.Duration, error) {
	if strings.EqualFold(s, "UNLIMITED") || strings.EqualFold(s, "INFINITE") {
		return Unlimited, nil
	}
	seconds, err := parseSeconds(s)
	if err != nil {
		return 0, fmt.Errorf("time %s: %w", clip(s), err)
	}
	return time.Duration(seconds) * time.Second, nil
}

func parseSeconds(s string) (uint64, error) {
	days, clock, hasDays := strings.Cut(s, "-")
	if !hasDays {
		days, clock = "0", s
	}
	fields := strings.Split(clock, ":")
	units := timeUnits(hasDays, len(fields))
	if units == nil {
		return 0, errors.New("too many fields; write minutes, mm:ss, hh:mm:ss, d-hh, d-hh:mm or d-hh:mm:ss")
	}
	total := uint64(0)
	for i, field := range append(fields, days) {
		n, err := strconv.ParseUint(field, 10, 31)
		if errors.Is(err, strconv.ErrRange) {
			return 0, errors.New("it is longer than Slurm can hold; write UNLIMITED for no limit")
		}
		if err != nil {
			return 0, fmt.Errorf("%s is not a number; write minutes, hh:mm:ss or d-hh:mm:ss", clip(field))
		}
		total += n * units[i] // 31 bits times 86,400, four times: far below 64 bits
	}
	if total > maxSeconds {
		return 0, errors.New("it is longer than Slurm can hold; write UNLIMITED for no limit")
	}
	return total, nil
}

// timeUnits gives the seconds in one of each field, the clock's from left to right and then the
// days'. A lone number is minutes, but after days it is hours.
func timeUnits(hasDays bool, fields int) []uint64 {
	const second, minute, hour, day = 1, 60, 3600, 86400
	switch {
	case fields == 3:
		return []uint64{hour, minute, second, day}
	case fields == 2 && hasDays:
		return []uint64{hour, minute, day}
	case fields == 2:
		return []uint64{minute, second, day}
	case fields == 1 && hasDays:
		return []uint64{hour, day}
	case fields == 1:
		return []uint64{minute, day}
	}
	return nil
}

// FormatTime writes d as Slurm shows times: hh:mm:ss, d-hh:mm:ss from a day on, UNLIMITED for
// [Unlimited], and INVALID for a negative one. A part of a second counts as a whole one, so that a
// limit never becomes shorter.
func FormatTime(d time.Duration) string {
	switch {
	case d == Unlimited:
		return "UNLIMITED"
	case d < 0:
		return "INVALID"
	}
	seconds := int64(d / time.Second)
	if d%time.Second > 0 {
		seconds++
	}
	days, clock := seconds/86400, seconds%86400
	text := fmt.Sprintf("%02d:%02d:%02d", clock/3600, clock/60%60, clock%60)
	if days > 0 {
		return fmt.Sprintf("%d-%s", days, text)
	}
	return text
}
