package slurm

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxCount is the largest count of one node; Slurm keeps them in 16 bits.
const maxCount = 1<<16 - 1

// ParseTaskCounts reads the run-length form in which Slurm writes one number per node, as in
// SLURM_STEP_TASKS_PER_NODE or SLURM_JOB_CPUS_PER_NODE: "2(x3),1" is 2, 2, 2, 1, in node order.
// More than [MaxNodes] numbers are an error, which it returns before it allocates memory for them.
func ParseTaskCounts(s string) ([]int, error) {
	var counts []int
	for item := range strings.SplitSeq(s, ",") {
		count, times, err := parseCount(item)
		if err != nil {
			return nil, fmt.Errorf("counts %s: %w", clip(s), err)
		}
		if times > MaxNodes-len(counts) {
			return nil, fmt.Errorf("counts %s: they are for more than the %d nodes that a job may have", clip(s), MaxNodes)
		}
		for range times {
			counts = append(counts, count)
		}
	}
	return counts, nil
}

// parseCount reads "2" or "2(x3)".
func parseCount(item string) (count, times int, err error) {
	number, repeat, repeated := strings.Cut(item, "(x")
	if repeated {
		digits, closed := strings.CutSuffix(repeat, ")")
		if !closed {
			return 0, 0, fmt.Errorf("%s has no closing bracket; write 2(x3)", clip(item))
		}
		if times, err = parseInt(digits); err != nil {
			return 0, 0, err
		}
		if times == 0 {
			return 0, 0, fmt.Errorf("%s repeats a count 0 times", clip(item))
		}
	} else {
		times = 1
	}
	if count, err = parseInt(number); err != nil {
		return 0, 0, err
	}
	if count > maxCount {
		return 0, 0, fmt.Errorf("the count %d of one node is above %d, the largest that Slurm has", count, maxCount)
	}
	return count, times, nil
}

// FormatTaskCounts formats one number per node as Slurm does: 2, 2, 2, 1 is "2(x3),1".
func FormatTaskCounts(counts []int) string {
	var b strings.Builder
	for i := 0; i < len(counts); {
		next := i + 1
		for next < len(counts) && counts[next] == counts[i] {
			next++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(counts[i]))
		if next-i > 1 {
			fmt.Fprintf(&b, "(x%d)", next-i)
		}
		i = next
	}
	return b.String()
}

// parseInt parses decimal digits without a sign, up to 31 bits.
func parseInt(digits string) (int, error) {
	n, err := strconv.ParseUint(digits, 10, 31)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, fmt.Errorf("the number %s is too large", clip(digits))
	case err != nil:
		return 0, fmt.Errorf("%s is not a number", clip(digits))
	}
	return int(n), nil
}

// sizeForm is an amount of memory as sbatch(1) describes --mem: a whole number of MiB, or of the unit that the suffix names: K, M, G or T,
// in either case, with or without a B after it. As in Slurm, fractions and P are not allowed.
var sizeForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([0-9]+)(?:([KMGTkmgt])[Bb]?)?$`) })

// checkSize refuses sizes that sbatch refuses, and sizes from 8 EiB on, which overflow in sbatch.
func checkSize(s string) error {
	_, err := ParseSize(s)
	return err
}

// ParseSize parses an amount of memory as sbatch takes it for --mem. It returns bytes.
func ParseSize(s string) (int64, error) {
	parts := sizeForm().FindStringSubmatch(s)
	if parts == nil {
		return 0, fmt.Errorf("size %s: write a whole number of MiB, or one with K, M, G or T after it, such as 1500M or 32G", clip(s))
	}
	shift := map[string]int{"K": 10, "": 20, "M": 20, "G": 30, "T": 40}[strings.ToUpper(parts[2])]
	n, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil || n > math.MaxInt64>>shift {
		return 0, fmt.Errorf("size %s: it must be less than 8 EiB", clip(s))
	}
	return n << shift, nil
}

// Unlimited is the time limit that Slurm writes UNLIMITED: longer than any other.
const Unlimited = time.Duration(math.MaxInt64)

// maxSeconds is the longest limit that Slurm can represent, some 68 years: it computes in 32-bit seconds,
// which overflow silently.
const maxSeconds = math.MaxInt32

// ParseTime parses a time as sbatch(1) describes --time: "minutes", "minutes:seconds",
// "hours:minutes:seconds", "days-hours", "days-hours:minutes" and "days-hours:minutes:seconds", and
// UNLIMITED or INFINITE, in any case, which are [Unlimited]. As in Slurm, fields do not have an upper
// bound of their own: "90:00" is an hour and a half.
//
// Note that sbatch treats a limit of zero as "no limit", and rounds seconds up to a minute;
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
			return 0, fmt.Errorf("%s is not a number; write %s", clip(field), asTime(s))
		}
		total += n * units[i] // 31 bits times 86,400, four times: far below 64 bits
	}
	if total > maxSeconds {
		return 0, errors.New("it is longer than Slurm can hold; write UNLIMITED for no limit")
	}
	return total, nil
}

// asTime returns how Slurm writes a duration such as "5m", or the forms of times in general.
func asTime(s string) string {
	d, err := time.ParseDuration(s)
	switch {
	case err != nil || d <= 0:
		return "minutes, hh:mm:ss or d-hh:mm:ss"
	case d%time.Minute == 0:
		return fmt.Sprintf(`"%d" (minutes) or "%s"`, d/time.Minute, FormatTime(d))
	}
	return strconv.Quote(FormatTime(d))
}

// timeUnits returns the seconds in one unit of each field: the clock's fields from left to right, and then the
// days. A single number is minutes, but after days it is hours.
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

// FormatTime formats d as Slurm shows times: hh:mm:ss, d-hh:mm:ss from a day on, UNLIMITED for
// [Unlimited], and INVALID for a negative duration. It rounds up to whole seconds, so that a
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

// Warning is the signal that Slurm sends to a job before its time limit (sbatch's --signal).
type Warning struct {
	Signal syscall.Signal
	Batch  bool          // only the batch script gets the signal ("B:"); false: only the tasks of the job's steps get it
	Lead   time.Duration // how long before the limit, in whole seconds; 0: the signal never comes
}

// defaultLead is Slurm's default, used if a text names only the signal.
const defaultLead = 60 * time.Second

// ParseWarning parses the argument of --signal: "[{R|B}:]SIGNAL[@SECONDS]", with the signal by number or by name, in any case, with or
// without SIG. It accepts and ignores R, which allows the job to overlap with a reservation.
func ParseWarning(text string) (Warning, error) {
	w := Warning{Lead: defaultLead}
	wrong := func(what string) (Warning, error) {
		return Warning{}, fmt.Errorf("signal %s: %s; write what sbatch's --signal takes, such as B:USR2@120", clip(text), what)
	}
	flags, name, flagged := strings.Cut(text, ":")
	if !flagged {
		flags, name = "", text
	}
	for _, flag := range flags {
		switch flag {
		case 'B', 'b':
			w.Batch = true
		case 'R', 'r':
		default:
			return wrong("before the colon there may be only B and R")
		}
	}
	name, seconds, timed := strings.Cut(name, "@")
	if timed {
		n, err := strconv.ParseUint("0"+seconds, 10, 64) // Slurm takes an empty one for 0
		if err != nil || n > math.MaxUint16 {
			return wrong("after the @ there must be a number of seconds from 0 to 65535")
		}
		w.Lead = time.Duration(n) * time.Second
	}
	name = strings.ToUpper(strings.TrimSpace(name))
	if n, err := strconv.ParseUint(name, 10, 16); err == nil {
		w.Signal = syscall.Signal(n)
	} else {
		w.Signal = unix.SignalNum("SIG" + strings.TrimPrefix(name, "SIG"))
	}
	if w.Signal < 1 || w.Signal > maxSignal {
		return wrong("unknown signal")
	}
	return w, nil
}

// maxSignal is Linux's last real-time signal.
const maxSignal = 64

// Name returns the signal's name without SIG, or its number if it has no name.
func (w Warning) Name() string {
	if name := unix.SignalName(w.Signal); name != "" {
		return strings.TrimPrefix(name, "SIG")
	}
	return strconv.Itoa(int(w.Signal))
}

// String returns the warning as sbatch takes it.
func (w Warning) String() string {
	flag := ""
	if w.Batch {
		flag = "B:"
	}
	return fmt.Sprintf("%s%s@%d", flag, w.Name(), int(w.Lead/time.Second))
}

// clusterList matches a list of names of clusters.
var clusterList = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}(,[A-Za-z0-9_.-]{1,64})*$`)
})

// AreClusters reports whether a text is a list of names of clusters. "all" is not: it may mean other clusters tomorrow.
func AreClusters(text string) bool {
	return clusterList().MatchString(text) && !strings.EqualFold(text, "all")
}
