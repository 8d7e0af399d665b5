package attempt

import (
	"fmt"
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
	for facts, want := range map[string]time.Time{
		"TimeLimit=00:01:00 EndTime=2026-11-21T00:29:07":  time.Date(2026, 11, 21, 0, 29, 7, 0, time.Local),
		"TimeLimit=UNLIMITED EndTime=Unknown":             {},
		"TimeLimit=UNLIMITED EndTime=2027-11-21T00:29:07": {}, // Slurm reports a year from now
	} {
		p.Says("scontrol.out", "JobId=12 JobName=x UserId=root(0) JobState=RUNNING Reason=None Restarts=0 "+facts+" PreemptTime=None\n")
		if got, err := e.env().FindDeadline()(t.Context()); err != nil || !got.Equal(want) {
			t.Errorf("%s: %v, %v, want %v", facts, got, err, want)
		}
	}
	p.Says("scontrol.out", "JobId=12 JobName=x UserId=root(0) JobState=RUNNING Reason=None Restarts=0 TimeLimit=00:01:00 EndTime=Unknown\n")
	if got, err := e.env().FindDeadline()(t.Context()); err == nil {
		t.Errorf("an end that Slurm does not know is %v", got)
	}
	p.Says("scontrol.err", "slurm_load_jobs error: Invalid job id specified\n")
	if _, err := e.env().FindDeadline()(t.Context()); err == nil {
		t.Error("a job that Slurm does not know has a deadline")
	}
	e.Environ = append(e.Environ, "DDPBATCH_DEADLINE=1090")
	if e.env().FindDeadline() != nil {
		t.Error("Slurm is asked for a deadline that the user has set")
	}
}

// TestIsPreempted: IsPreempted reads PreemptTime in what scontrol prints about a job (slurm/testdata has real answers).
func TestIsPreempted(t *testing.T) {
	if (&script{}).env().IsPreempted() != nil {
		t.Error("there is somebody to be asked outside of a job")
	}
	p := newPretendSlurm(t)
	e, _, _ := p.env(0, 1)
	for at, want := range map[string]bool{"None": false, "2026-11-21T00:29:07": true} {
		p.Says("scontrol.out", fmt.Sprintf(fakeslurm.Facts, "RUNNING Reason=None PreemptTime="+at, 0, "(null)"))
		if got, err := e.env().IsPreempted()(t.Context()); err != nil || got != want {
			t.Errorf("%s: %t, %v, want %t", at, got, err, want)
		}
	}
	p.Says("scontrol.err", "slurm_load_jobs error: Invalid job id specified\n")
	if _, err := e.env().IsPreempted()(t.Context()); err == nil {
		t.Error("what a job is that Slurm does not know is told")
	}
}

// The grace of the workers and the time for the steps after it fit into KillWait together, and both are more than zero.
func TestTermGraceStaysWithinKillWait(t *testing.T) {
	if got := TermGrace((&script{}).lookup); got != 0 {
		t.Errorf("outside of a job: %v", got)
	}
	for text, want := range map[string]time.Duration{"30s": 20 * time.Second, "1m0s": 40 * time.Second, "10s": 5 * time.Second,
		"soon": 20 * time.Second, "-5s": 20 * time.Second} {
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

// TestAttemptBeginHandsOnSrunPortRange: the agents also use Slurm's SrunPortRange for their rendezvous.
func TestAttemptBeginHandsOnSrunPortRange(t *testing.T) {
	for config, want := range map[string]string{
		"KillWait = 7 sec\nSrunPortRange           = 60001-63000\n": "export DDPBATCH_PORTS=60001-63000\n",
		"KillWait = 7 sec\nSrunPortRange           = 0-0\n":         "",
	} {
		p, run := newPretendSlurm(t), fakeslurm.Run(t, "")
		p.Says("scontrol.out", config)
		e, out, _ := p.env(0, 0)
		if err := e.begin(t, run); err != nil || strings.Contains(out.String(), "DDPBATCH_PORTS") != (want != "") ||
			!strings.Contains(out.String(), want) {
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
