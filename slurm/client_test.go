package slurm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// corpus is what the commands of a real Slurm 22.05 said: its README.md tells how it was collected.
var corpus = filepath.Join("testdata", "22.05")

// recorded is the real output of a command: a path in the corpus without its suffix.
func recorded(t testing.TB, name string) Output {
	t.Helper()
	var out Output
	read := func(suffix string) []byte {
		data, err := os.ReadFile(filepath.Join(corpus, name+suffix))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	out.Stdout, out.Stderr = read(".stdout"), read(".stderr")
	code, err := strconv.Atoi(strings.TrimSpace(string(read(".rc"))))
	if err != nil {
		t.Fatal(err)
	}
	out.Code = code
	return out
}

// pretend answers commands from a table, and keeps what was asked.
type pretend struct {
	answers map[string]Output // by the command's name; of one that is not there the site has none
	asked   []string
	environ []string
}

func (p *pretend) run(_ context.Context, c Command) (Output, error) {
	p.asked = append(p.asked, ShellJoin(append([]string{c.Name}, c.Args...)))
	p.environ = c.Environ
	out, found := p.answers[c.Name]
	if !found {
		return Output{}, fmt.Errorf("%w: no %s", ErrNoSlurm, c.Name)
	}
	return out, nil
}

func (p *pretend) client() *Client { return &Client{Run: p.run} }

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

func TestParseParsable(t *testing.T) {
	for out, want := range map[string]JobID{
		"32\n":                         {ID: "32"},
		"32":                           {ID: "32"},
		"3;lab\n":                      {ID: "3", Cluster: "lab"},
		"Welcome to Stampede3\n7\n":    {ID: "7"},
		"1\nyour quota: 5\n8\nbye\n":   {ID: "8"},
		"  9  \r\n":                    {ID: "9"},
		"Submitted batch job 33\n":     {},
		"":                             {},
		"12345678901\n":                {}, // no id of Slurm's has eleven digits
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

// What sbatch said to good and bad input, and what becomes of it.
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
		"sbatch-errors/bad-partition":         {"", ErrRefused, "sbatch refused: invalid partition specified: nosuch; Batch job submission failed: Invalid partition name specified"},
		"sbatch-errors/bad-reservation":       {"", ErrRefused, "Requested reservation is invalid"},
		"sbatch-errors/bad-time":              {"", ErrRefused, "Invalid --time specification"},
		"sbatch-errors/too-many-gpus":         {"", ErrRefused, "Requested node configuration is not available"},
		"sbatch-errors/crlf":                  {"", ErrRefused, "DOS line breaks"},
		"sbatch-errors/empty":                 {"", ErrRefused, "Batch script is empty!"},
		"sbatch-errors/no-shebang":            {"", ErrRefused, "does not look like a batch script"},
		"sbatch-errors/missing-file":          {"", ErrRefused, "Unable to open file"},
		"cli/sbatch-clusters-bad":             {"", ErrRefused, "No cluster 'nosuch' known by database."},
		"sbatch-errors/ctld-down":             {"", ErrUnreachable, "Protocol authentication error"},
		"sbatch-errors/no-conf":               {"", ErrUnreachable, "Could not establish a configuration source"},
		"ctld-down/sbatch":                    {"", ErrUnreachable, "connect failure"},
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

// No failure in the corpus goes by as a success, or the other way round.
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
		if errors.As(err, &refused) && (refused.Code != out.Code || refused.Command != "sbatch" || len(out.Stderr) > 0 && refused.Words == "") {
			t.Errorf("%s: %+v", name, refused)
		}
	}
}

// A number in a greeting is no job, when sbatch says that it has failed.
func TestSubmitRefusedBesideGreeting(t *testing.T) {
	out := recorded(t, "sbatch-errors/bad-partition")
	out.Stdout = []byte("jobs in the queue:\n5\n")
	p := &pretend{answers: map[string]Output{"sbatch": out}}
	if id, err := p.client().Submit(t.Context(), "/s.sh", nil); id != (JobID{}) || !errors.Is(err, ErrRefused) {
		t.Errorf("id %v, error %v", id, err)
	}
}

func TestSubmitWithoutID(t *testing.T) {
	p := &pretend{answers: map[string]Output{"sbatch": {Stdout: []byte("Submitted batch job 33\n")}}}
	if id, err := p.client().Submit(t.Context(), "/s.sh", nil); id != (JobID{}) || err == nil || !strings.Contains(err.Error(), "Submitted batch job 33") {
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

func TestClientEnviron(t *testing.T) {
	p := &pretend{answers: map[string]Output{"squeue": recorded(t, "cli/squeue-unknown-job"), "sbatch": {Stdout: []byte("1\n")}}}
	given := []string{"PATH=/bin", "SQUEUE_STATES=PENDING", "SLURM_CONF=/etc/slurm.conf", "SLURM_TIME_FORMAT=relative", "SACCT_FORMAT=x", "SQUEUE=1"}
	client := &Client{Environ: given, Run: p.run}
	if _, err := client.Jobs(t.Context(), []string{"1"}); !errors.Is(err, ErrUnknownJob) {
		t.Errorf("error %v", err)
	}
	if want := []string{"PATH=/bin", "SLURM_CONF=/etc/slurm.conf", "SQUEUE=1"}; !slices.Equal(p.environ, want) {
		t.Errorf("asked with %q, want %q", p.environ, want)
	}
	if _, err := client.Submit(t.Context(), "/s.sh", nil); err != nil || !slices.Equal(p.environ, given) {
		t.Errorf("submitted with %q (%v), want all of %q", p.environ, err, given)
	}
}
