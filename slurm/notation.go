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

// ParseTaskCounts reads the run-length form that Slurm gives one number per node in, such as
// SLURM_STEP_TASKS_PER_NODE or SLURM_JOB_CPUS_PER_NODE: "2(x3),1" is 2, 2, 2, 1, in node order.
// More than [MaxNodes] numbers are an error, found before memory is taken for them.
func ParseTaskCounts(s string) ([]int, error) {
	var counts []int
	for item := range strings.SplitSeq(s, ",") {
		count, times, err := parseCount(item)
		if err != nil {
			return nil, fmt.Errorf("counts %s: %w", clip(s), err)
		}
		if times > MaxNodes-len(counts) {
			return nil, fmt.Errorf("counts %s: for more than the %d nodes that a job may have", clip(s), MaxNodes)
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
			return 0, 0, fmt.Errorf("%s repeats no times", clip(item))
		}
	} else {
		times = 1
	}
	if count, err = parseInt(number); err != nil {
		return 0, 0, err
	}
	if count > maxCount {
		return 0, 0, fmt.Errorf("%d on one node, more than the %d that Slurm can count", count, maxCount)
	}
	return count, times, nil
}

// FormatTaskCounts writes one number per node as Slurm does: 2, 2, 2, 1 is "2(x3),1".
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

// parseInt reads decimal digits, without a sign, up to 31 bits.
func parseInt(digits string) (int, error) {
	n, err := strconv.ParseUint(digits, 10, 31)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, fmt.Errorf("%s is too large a number", clip(digits))
	case err != nil:
		return 0, fmt.Errorf("%s is not a number", clip(digits))
	}
	return int(n), nil
}

// sizeForm is an amount of memory as sbatch(1) describes --mem: a whole number of MiB, or of what the suffix says: K, M, G or T, in either
// case, with or without a B after it. As in Slurm there are no fractions and no P.
var sizeForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([0-9]+)(?:([KMGTkmgt])[Bb]?)?$`) })

// checkSize refuses what sbatch does, and what it wraps round: from 8 EiB on.
func checkSize(s string) error {
	_, err := ParseSize(s)
	return err
}

// ParseSize reads an amount of memory as sbatch takes it for --mem, in bytes.
func ParseSize(s string) (int64, error) {
	parts := sizeForm().FindStringSubmatch(s)
	if parts == nil {
		return 0, fmt.Errorf("size %s: write a whole number of MiB, or one with K, M, G or T after it, such as 1500M or 32G", clip(s))
	}
	shift := map[string]int{"K": 10, "": 20, "M": 20, "G": 30, "T": 40}[strings.ToUpper(parts[2])]
	n, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil || n > math.MaxInt64>>shift {
		return 0, fmt.Errorf("size %s: it is 8 EiB or more", clip(s))
	}
	return n << shift, nil
}

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

// Warning is the signal that Slurm sends to a job before its time limit (sbatch's --signal).
type Warning struct {
	Signal syscall.Signal
	Batch  bool          // the batch script alone gets it ("B:"); false: the tasks of the job's steps do, and not the script
	Lead   time.Duration // so long before the limit, in whole seconds; 0: it never comes
}

// defaultLead is Slurm's own, where a text names the signal alone.
const defaultLead = 60 * time.Second

// ParseWarning reads what --signal takes: "[{R|B}:]SIGNAL[@SECONDS]", the signal by number or by name, in any case, with or without SIG.
// What R stands for, jobs that overlap with a reservation, leaves no trace.
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
			return wrong("before the colon stands B, R or nothing")
		}
	}
	name, seconds, timed := strings.Cut(name, "@")
	if timed {
		n, err := strconv.ParseUint("0"+seconds, 10, 64) // Slurm takes an empty one for 0
		if err != nil || n > math.MaxUint16 {
			return wrong("behind the @ stands a number of seconds from 0 to 65535")
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
		return wrong("there is no such signal")
	}
	return w, nil
}

// maxSignal is Linux's last real-time signal.
const maxSignal = 64

// Name is the signal's name without SIG, or its number where it has none.
func (w Warning) Name() string {
	if name := unix.SignalName(w.Signal); name != "" {
		return strings.TrimPrefix(name, "SIG")
	}
	return strconv.Itoa(int(w.Signal))
}

// String is the text that sbatch takes.
func (w Warning) String() string {
	flag := ""
	if w.Batch {
		flag = "B:"
	}
	return fmt.Sprintf("%s%s@%d", flag, w.Name(), int(w.Lead/time.Second))
}

// clusterList is a list of clusters that are named.
var clusterList = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}(,[A-Za-z0-9_.-]{1,64})*$`)
})

// AreClusters reports whether a text names clusters: not "all", which may be others tomorrow.
func AreClusters(text string) bool {
	return clusterList().MatchString(text) && !strings.EqualFold(text, "all")
}
