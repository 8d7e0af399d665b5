package attempt

import (
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/testkit/fakeslurm"
)

func TestFindDeadline(t *testing.T) {
	if (&script{}).env().FindDeadline() != nil {
		t.Error("there is a deadline to be found outside of a job")
	}
	p := newPretendSlurm(t)
	e, _, _ := p.env(0, 1)
	e.Now = func() time.Time { return time.Unix(1000, 0) }
	for left, want := range map[string]time.Time{"1:30": time.Unix(1090, 0), "UNLIMITED": {}, "INVALID": time.Unix(1000, 0)} {
		p.Says("squeue.out", "12\x1f"+left+"\n")
		if got, err := e.env().FindDeadline()(t.Context()); err != nil || !got.Equal(want) {
			t.Errorf("%s: %v, %v, want %v", left, got, err, want)
		}
	}
	p.Says("squeue.err", "slurm_load_jobs error: Invalid job id specified\n")
	if _, err := e.env().FindDeadline()(t.Context()); err == nil {
		t.Error("a job that Slurm does not know has a deadline")
	}
	e.Environ = append(e.Environ, "DDPBATCH_DEADLINE=1090")
	if e.env().FindDeadline() != nil {
		t.Error("Slurm is asked for a deadline that the user has set")
	}
}

// The workers' time, and that of what follows them, are both within KillWait, and neither is nothing.
func TestTermGraceStaysWithinKillWait(t *testing.T) {
	if got := TermGrace((&script{}).lookup); got != 0 {
		t.Errorf("outside of a job: %v", got)
	}
	for text, want := range map[string]time.Duration{"30s": 20 * time.Second, "1m0s": 40 * time.Second, "10s": 5 * time.Second, "soon": 20 * time.Second, "-5s": 20 * time.Second} {
		if got := TermGrace(killWaitIs(text)); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
	for killWait := time.Second; killWait < 5*time.Minute; killWait += time.Second {
		grace := TermGrace(killWaitIs(killWait.String()))
		if grace < killWait/3-1 || grace+killWait/3 > killWait+1 {
			t.Errorf("KillWait %v leaves the workers %v", killWait, grace)
		}
	}
}

func killWaitIs(text string) func(string) (string, bool) {
	return (&script{Environ: []string{killWaitName + "=" + text}}).lookup
}

// TestAttemptBeginHandsOnSrunPortRange: agents meet where srun may be reached, too.
func TestAttemptBeginHandsOnSrunPortRange(t *testing.T) {
	for config, want := range map[string]string{
		"KillWait = 7 sec\nSrunPortRange           = 60001-63000\n": "export DDPBATCH_PORTS=60001-63000\n",
		"KillWait = 7 sec\nSrunPortRange           = 0-0\n":         "",
	} {
		p, run := newPretendSlurm(t), fakeslurm.Run(t, "")
		p.Says("scontrol.out", config)
		e, out, _ := p.env(0, 0)
		if err := e.begin(t, run); err != nil || strings.Contains(out.String(), "DDPBATCH_PORTS") != (want != "") || !strings.Contains(out.String(), want) {
			t.Errorf("%q: %s, %v", config, out, err)
		}
	}
}

func TestAttemptBeginSetsKillWait(t *testing.T) {
	const seven = "KillWait                = 7 sec\n"
	for name, test := range map[string]struct{ before, config, want string }{
		"told":                 {"", seven, "7s"},
		"told by a busy Slurm": {"sleep 3", seven, "7s"},
		"not told":             {"", "", "30s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, run := newPretendSlurm(t), fakeslurm.Run(t, "")
			p.Says("scontrol.out", test.config)
			p.First("scontrol", test.before)
			e, out, _ := p.env(0, 0)
			if err := e.begin(t, run); err != nil || !strings.Contains(out.String(), killWaitName+"="+test.want+"\n") {
				t.Errorf("%s, %v", out, err)
			}
		})
	}
}
