package main

import (
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// hostile lists texts that turn into a command, a directive or something else if any step forgets to quote them. A file called pwned shows
// that.
var hostile = []string{
	"", " ", "  two  blanks\t", "$(touch pwned)", "`touch pwned`", "'; touch pwned; '", `"; touch pwned; "`, "a\ntouch pwned\n",
	"\n#SBATCH --job-name=pwned\n", "#SBATCH --wrap=x", "# not a comment", "$HOME ${PATH}", `back\slash\\n`, "%j %x %%",
	"* ? [a]", "~root", "!!",
	"ünï ☃ 日本", "\x01\x1b[31m\x7f", "-n", "--", "{{.RunDir}}", "<<EOF\nEOF", "&& touch pwned &", "end\n\n",
}

// recordWorker writes each of its arguments and each of the HOSTILE_ variables byte for byte into files of the working directory.
const recordWorker = `i=0
for word; do printf %s "$word" >"out/arg.$i"; i=$((i + 1)); done
i=0
while [ $i -lt "$COUNT" ]; do eval "printf %s \"\$HOSTILE_$i\"" >"out/env.$i"; i=$((i + 1)); done
printf %s "$PWD" >out/pwd
printf %s "$SLURM_JOB_NAME" >out/name
printf %s "$DDPBATCH_RUN_DIR" >out/run_dir`

// testSlurmQuoting passes hostile text through every part of a job: the path of its file, the working directory, environment variables and
// arguments.
func testSlurmQuoting(t *testing.T, c *cluster) {
	const name = "a.b-c_9.sh"
	// it may hold no slash, and Slurm itself does not support a backslash there
	c.dir = filepath.Join(c.dir, `it's "#1" $(touch pwned) `+"`touch pwned`; $HOME ünï %j 100% !!")
	if err := os.MkdirAll(filepath.Join(c.dir, "out"), 0o700); err != nil {
		t.Fatal(err)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	texts := append(slices.Clone(hostile), anyTexts(rand.New(rand.NewPCG(seed, 19)), 100)...)
	c.write(name, recordingJob(t, name, texts))
	s := c.submit(name, "--wait")

	reached(t, filepath.Join(c.dir, "out"), texts)
	want := map[string]string{"pwd": c.dir, "name": name, "run_dir": s.dir.Path()}
	for file, text := range want {
		got, err := os.ReadFile(filepath.Join(c.dir, "out", file))
		if err != nil || string(got) != text {
			t.Errorf("%s is %q (%v), want %q", file, got, err, text)
		}
	}
	// commands for the run directory also work in such a folder
	if row := s.status(); row.State != "COMPLETED" || row.Name != name {
		t.Errorf("status: %+v", row)
	}
	c.ok("ddpbatch", "logs", s.id)
	nothingPwned(t, filepath.Dir(c.dir))
	nothingPwned(t, c.home)
}

// nothingPwned checks that no hostile text was ever run.
func nothingPwned(t *testing.T, folder string) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "pwned" {
			t.Errorf("hostile text was run: there is %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// The environment of a job's workers is the same whether the job is submitted from outside any job or from a task of another job.
func testSlurmNested(t *testing.T, c *cluster) {
	job := c.commandJob("inner", "nodes = 1", "1", "sh", "-c", `env -0 >"environment.$SLURM_JOB_ID"`)
	outside := c.submit(job, "--wait").id
	out := c.ok("srun", "-N2", "-n4", "-c1", "--gres=gpu:1", "bash", "-c",
		`[ "$SLURM_PROCID" != 3 ] || SBATCH_TIMELIMIT=1 RANK=3 WORLD_SIZE=4 ddpbatch submit --parsable --wait `+job)
	inside := strings.TrimSpace(out.stdout)
	if inside == outside || inside == "" {
		t.Fatalf("submit inside a task: %v", out)
	}
	want, got := c.taskEnviron(outside), c.taskEnviron(inside)
	for _, name := range []string{"SLURM_NTASKS", "SLURM_NNODES", "SLURM_STEP_TASKS_PER_NODE", "SLURM_PROCID", "RANK", "WORLD_SIZE"} {
		if got[name] != want[name] || got[name] == "" {
			t.Errorf("%s is %q in a job submitted from a task, %q in one submitted from outside", name, got[name], want[name])
		}
	}
	for name := range got {
		if _, there := want[name]; !there && leaky(name) {
			t.Errorf("%s=%s came from the task that submitted", name, got[name])
		}
	}
	if limit := c.job(inside)["TimeLimit"]; limit != "00:05:00" {
		t.Errorf("the time limit is %s, and the job file says 5 minutes", limit)
	}
}

// leaky reports whether a variable belongs to a job, or to a rank in it.
func leaky(name string) bool {
	prefixes := []string{"SLURM", "SBATCH", "SRUN", "PMI", "CUDA", "RANK", "WORLD", "MASTER", "LOCAL_", "DDPBATCH_"}
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// taskEnviron reads what a worker of testSlurmNested wrote.
func (c *cluster) taskEnviron(id string) map[string]string {
	c.t.Helper()
	text, err := os.ReadFile(filepath.Join(c.dir, "environment."+id))
	if err != nil {
		c.t.Fatal(err)
	}
	environ := map[string]string{}
	for entry := range strings.SplitSeq(string(text), "\x00") {
		name, value, _ := strings.Cut(entry, "=")
		environ[name] = value
	}
	return environ
}
