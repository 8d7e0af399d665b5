package slurm

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestSubmit(t *testing.T) {
	p := &pretend{answers: map[string]Output{"sbatch": {Stdout: []byte("Welcome to the Stampede3\n\n****\n12\n")}}}
	id, err := p.client().Submit(t.Context(), "/r/script.sh", []string{"--qos=high", "--comment=a b"})
	if err != nil || id != (JobID{ID: "12"}) {
		t.Errorf("id %v, error %v", id, err)
	}
	if want := "sbatch --parsable --qos=high '--comment=a b' /r/script.sh"; !slices.Equal(p.asked, []string{want}) {
		t.Errorf("ran %q, want %q", p.asked, want)
	}
	if _, err := p.client().Submit(t.Context(), "script.sh", nil); err == nil || !strings.Contains(err.Error(), "absolute") {
		t.Errorf("a relative path: %v", err)
	}
}

func TestJobIDIsFoundBesideAGreeting(t *testing.T) {
	for out, want := range map[string]JobID{
		"32\n":                         {ID: "32"},
		"32":                           {ID: "32"},
		"3;lab\n":                      {ID: "3", Cluster: "lab"},
		"Welcome to Stampede3\n7\n":    {ID: "7"},
		"1\nyour quota: 5\n8\nbye\n":   {ID: "8"},
		"  9  \r\n":                    {ID: "9"},
		"Submitted batch job 33\n":     {},
		"":                             {},
		"12345678901\n":                {}, // Slurm's ids do not have eleven digits
		"-1\n":                         {},
		"3;\n":                         {},
		"3;la b\n":                     {},
		"1 2\n":                        {},
		"\x1b[32m12\x1b[0m\n":          {},
		"12\n***\n*** maintenance ***": {ID: "12"},
	} {
		if id, found := parseParsable([]byte(out)); id != want || found != (want != JobID{}) {
			t.Errorf("%q: %+v, %t; want %+v", out, id, found, want)
		}
	}
}

// errAny stands for an error that matches no sentinel.
var errAny = errors.New("any")

// The corpus has the answers of sbatch to good and bad input. Each gives the listed id or error.
func TestSubmitCorpus(t *testing.T) {
	for name, c := range map[string]struct {
		id   string
		err  error
		says string
	}{
		"sbatch-errors/parsable":              {"32", nil, ""},
		"sbatch-errors/closed-partition":      {"44", nil, ""},
		"sbatch-errors/late-option":           {"51", nil, ""},
		"cli/sbatch-parsable-cluster":         {"3;lab", nil, ""},
		"sbatch-errors/bad-chdir":             {"52", errAny, "job 52 was submitted, but then sbatch ended with exit code 1"}, // --wait
		"sbatch-errors/bad-array":             {"", ErrRefused, "Invalid job array specification"},
		"sbatch-errors/bad-begin":             {"", ErrRefused, "yesterdayish; Invalid --begin specification"},
		"sbatch-errors/bad-constraint":        {"", ErrRefused, "Invalid feature specification"},
		"sbatch-errors/bad-dependency-syntax": {"", ErrRefused, "Job dependency problem"},
		"sbatch-errors/bad-gres":              {"", ErrRefused, "sbatch refused: Invalid generic resource (gres) specification"},
		"sbatch-errors/bad-mem":               {"", ErrRefused, "Invalid --mem specification"},
		"sbatch-errors/bad-nodelist":          {"", ErrRefused, "Invalid node name specified"},
		"sbatch-errors/bad-option":            {"", ErrRefused, "unrecognized option '--nodez=2'"},
		"sbatch-errors/bad-partition": {"", ErrRefused,
			"sbatch refused: invalid partition specified: nosuch; Batch job submission failed: Invalid partition name specified"},
		"sbatch-errors/bad-reservation": {"", ErrRefused, "Requested reservation is invalid"},
		"sbatch-errors/bad-time":        {"", ErrRefused, "Invalid --time specification"},
		"sbatch-errors/too-many-gpus":   {"", ErrRefused, "Requested node configuration is not available"},
		"sbatch-errors/crlf":            {"", ErrRefused, "DOS line breaks"},
		"sbatch-errors/empty":           {"", ErrRefused, "Batch script is empty!"},
		"sbatch-errors/no-shebang":      {"", ErrRefused, "does not look like a batch script"},
		"sbatch-errors/missing-file":    {"", ErrRefused, "Unable to open file"},
		"cli/sbatch-clusters-bad":       {"", ErrRefused, "No cluster 'nosuch' known by database."},
		"sbatch-errors/ctld-down":       {"", ErrUnreachable, "Protocol authentication error"},
		"sbatch-errors/no-conf":         {"", ErrUnreachable, "Could not establish a configuration source"},
		"ctld-down/sbatch":              {"", ErrUnreachable, "connect failure"},
	} {
		p := &pretend{answers: map[string]Output{"sbatch": recorded(t, name)}}
		id, err := p.client().Submit(t.Context(), "/s.sh", nil)
		if id.String() != c.id || (c.err == errAny) != (err != nil && !errors.Is(err, ErrRefused) && !errors.Is(err, ErrUnreachable)) ||
			c.err != errAny && !errors.Is(err, c.err) || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: id %q, error %v; want %q, %v, %q", name, id, err, c.id, c.err, c.says)
		}
		if err != nil && strings.ContainsAny(err.Error(), "\n\r") {
			t.Errorf("%s: the error has several lines: %q", name, err)
		}
	}
}

// No failure in the corpus is taken for a success, and no success for a failure.
func TestSbatchErrorsCorpus(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(corpus, "sbatch-errors", "*.rc"))
	if err != nil || len(files) < 30 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	for _, file := range files {
		name := "sbatch-errors/" + strings.TrimSuffix(filepath.Base(file), ".rc")
		out := recorded(t, name)
		err := failure("sbatch", out)
		if (err != nil) != (out.Code != 0) {
			t.Errorf("%s: code %d became %v", name, out.Code, err)
		}
		var refused *RefusedError
		if errors.As(err, &refused) &&
			(refused.Code != out.Code || refused.Command != "sbatch" || len(out.Stderr) > 0 && refused.Words == "") {
			t.Errorf("%s: %+v", name, refused)
		}
	}
}

// If sbatch reports a failure, a number in a greeting is not taken for a job id.
func TestNumberInAGreetingIsNotAJob(t *testing.T) {
	out := recorded(t, "sbatch-errors/bad-partition")
	out.Stdout = []byte("jobs in the queue:\n5\n")
	p := &pretend{answers: map[string]Output{"sbatch": out}}
	if id, err := p.client().Submit(t.Context(), "/s.sh", nil); id != (JobID{}) || !errors.Is(err, ErrRefused) {
		t.Errorf("id %v, error %v", id, err)
	}
}

func TestSubmitWithoutAnIDFails(t *testing.T) {
	p := &pretend{answers: map[string]Output{"sbatch": {Stdout: []byte("Submitted batch job 33\n")}}}
	if id, err := p.client().Submit(t.Context(), "/s.sh", nil); id != (JobID{}) || err == nil ||
		!strings.Contains(err.Error(), "Submitted batch job 33") {
		t.Errorf("id %v, error %v; want an error with sbatch's words", id, err)
	}
	if _, err := (&pretend{}).client().Submit(t.Context(), "/s.sh", nil); !errors.Is(err, ErrNoSlurm) {
		t.Errorf("no sbatch: %v", err)
	}
}

func TestTestOnly(t *testing.T) {
	p := &pretend{answers: map[string]Output{"sbatch": recorded(t, "sbatch-errors/test-only")}}
	answer, err := p.client().TestOnly(t.Context(), "/s.sh", []string{"-N4"})
	if want := "Job 34 to start at 2026-11-21T00:33:22 using 4 processors on nodes n[1-4] in partition main"; err != nil || answer != want {
		t.Errorf("%q, %v; want %q", answer, err, want)
	}
	if want := []string{"sbatch --test-only -N4 /s.sh"}; !slices.Equal(p.asked, want) {
		t.Errorf("ran %q, want %q", p.asked, want)
	}
	p.answers["sbatch"] = recorded(t, "sbatch-errors/test-only-bad")
	var refused *RefusedError
	if _, err := p.client().TestOnly(t.Context(), "/s.sh", nil); !errors.As(err, &refused) || refused.Code != 1 ||
		refused.Words != "allocation failure: Requested node configuration is not available" {
		t.Errorf("hopeless: %v", err)
	}
}

func TestUserJobs(t *testing.T) {
	dir := t.TempDir()
	script, link := filepath.Join(dir, "run", "script.sh"), filepath.Join(dir, "again")
	other := filepath.Join(dir, "script.sh")
	if err := errors.Join(os.Mkdir(filepath.Dir(script), 0o700), os.WriteFile(script, nil, 0o700), os.WriteFile(other, nil, 0o700),
		os.Symlink(filepath.Dir(script), link)); err != nil {
		t.Fatal(err)
	}
	line := func(command, id, state string) string {
		return command + separator + squeueLine(map[byte]string{'i': id, 'A': id, 'T': state, 'j': "a|b"})
	}
	said := "Welcome\n" + line(script, "7", "PENDING") + line(other, "8", "RUNNING") +
		line(filepath.Join(link, "script.sh"), "9_[1-3]", "PENDING") +
		line("(null)", "10", "RUNNING") + line("", "11", "RUNNING") + line(script+".old", "12", "RUNNING")
	p := &pretend{answers: map[string]Output{"squeue": {Stdout: []byte(said)}}}
	all, err := p.client().UserJobs(t.Context(), "")
	jobs := all.OfScript(script)
	if err != nil || len(jobs) != 2 || jobs[0].ID != "7" || jobs[0].State != "PENDING" || jobs[0].Name != "a|b" || jobs[1].ID != "9_[1-3]" {
		t.Errorf("%+v, %v", jobs, err)
	}
	if _, err := p.client().UserJobs(t.Context(), "1000"); err != nil {
		t.Error(err)
	}
	const format = ` -o '%o` + separator + `%i` + separator + `%A` + separator + `%T` + separator + `%r` + separator +
		`%e` + separator + `%l` + separator + `%j'`
	for i, want := range []string{"squeue -h -t all --me" + format, "squeue -h -t all --users=1000" + format} {
		if p.asked[i] != want {
			t.Errorf("asked %q, want %q", p.asked[i], want)
		}
	}
	down := &pretend{answers: map[string]Output{"squeue": recorded(t, "ctld-down/squeue")}}
	if _, err := down.client().UserJobs(t.Context(), ""); !errors.Is(err, ErrUnreachable) {
		t.Errorf("the controller is down: %v", err)
	}
	none := &pretend{}
	if _, err := none.client().UserJobs(t.Context(), ""); !errors.Is(err, ErrNoSlurm) {
		t.Errorf("no Slurm: %v", err)
	}
}

func TestCancelNow(t *testing.T) {
	for name, c := range map[string]struct {
		id      string
		scancel Output
		err     error
	}{
		"running":       {"5", Output{}, nil},
		"on a cluster":  {"5;lab", Output{}, nil},
		"several":       {"5 6_7", Output{}, nil},
		"not one's own": {"5", recorded(t, "cli/scancel-not-permitted"), ErrRefused},
		"down":          {"5", recorded(t, "ctld-down/scancel"), ErrUnreachable},
	} {
		p := &pretend{answers: map[string]Output{"scancel": c.scancel}}
		if err := p.client().CancelNow(t.Context(), strings.Fields(c.id)[0], strings.Fields(c.id)[1:]...); !errors.Is(err, c.err) ||
			(err == nil) != (c.err == nil) {
			t.Errorf("%s: %v, want %v", name, err, c.err)
		}
		want := []string{map[string]string{"5": "scancel 5", "5 6_7": "scancel 5 6_7", "5;lab": "scancel --clusters=lab 5"}[c.id]}
		if !slices.Equal(p.asked, want) {
			t.Errorf("%s: ran %q", name, p.asked)
		}
	}
	p := &pretend{}
	for _, ids := range [][]string{{"x"}, {"5", "x"}, {"5;lab", "6"}} {
		if err := p.client().CancelNow(t.Context(), ids[0], ids[1:]...); err == nil || len(p.asked) > 0 {
			t.Errorf("%q: %v, ran %q", ids, err, p.asked)
		}
	}
}

func TestRequeue(t *testing.T) {
	p := &pretend{answers: map[string]Output{"scontrol": {}, "scancel": {}}}
	c := p.client()
	if err := errors.Join(c.Requeue(t.Context(), "12_3"), c.Requeue(t.Context(), "3;lab"), c.ExcludeNodes(t.Context(), "12_3", "n[1-2]"),
		c.CancelNow(t.Context(), "7")); err != nil {
		t.Fatal(err)
	}
	want := []string{"scontrol requeue 12_3", "scontrol --clusters=lab requeue 3", "scontrol update JobId=12_3 'ExcNodeList=n[1-2]'",
		"scancel 7"}
	if !slices.Equal(p.asked, want) {
		t.Errorf("ran %q, want %q", p.asked, want)
	}
	for _, id := range []string{"", "12_[3-4]", "-1", "12 13"} {
		if c.Requeue(t.Context(), id) == nil || c.ExcludeNodes(t.Context(), id, "n1") == nil {
			t.Errorf("job id %q was taken", id)
		}
	}
	// Slurm 22.05 prints these words for a job that was submitted with --no-requeue.
	p.answers["scontrol"] = Output{Code: 1,
		Stderr: []byte("Requested operation is presently disabled for job 7\nslurm_suspend error: Requested " +
			"operation is presently disabled\n")}
	if err := c.Requeue(t.Context(), "7"); !NotRequeueable(err) || !errors.Is(err, ErrRefused) {
		t.Errorf("a job that may not be requeued: %v", err)
	}
	// 22.05 prints these words if the controller is being replaced by its backup, or goes away in the middle of an answer.
	for _, words := range []string{"Slurm backup controller in standby mode", "Controller is in standby mode, try a different controller",
		"Message send failure",
		"Message receive failure", "Communication shutdown failure", "Unable to contact slurm controller (connect failure)"} {
		p.answers["scontrol"] = Output{Code: 1, Stderr: []byte("slurm_requeue error: " + words + "\n")}
		if err := c.Requeue(t.Context(), "7"); !errors.Is(err, ErrUnreachable) || errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v", words, err)
		}
	}
	p.answers["scontrol"] = Output{Code: 1, Stderr: []byte("Job is pending execution for job 3\n")}
	if err := c.Requeue(t.Context(), "3"); err == nil || NotRequeueable(err) {
		t.Errorf("a job that waits already: %v", err)
	}
	if c.ExcludeNodes(t.Context(), "3", "") == nil || c.ExcludeNodes(t.Context(), "3", "a\nb") == nil {
		t.Error("no list of nodes was taken for one")
	}
}
