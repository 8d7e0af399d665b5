package slurm

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

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
