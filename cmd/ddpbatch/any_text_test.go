package main

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// anyTexts draws texts that both a TOML string and an argument can hold: characters that mean something to shells, Slurm, TOML or
// templates, control characters, and all of Unicode except NUL.
func anyTexts(rng *rand.Rand, n int) []string {
	means := []string{
		" ", "\t", "\n", "\r", "'", `"`, "\\", "$", "`", "(", ")", "{", "}", "[", "]", "<", ">", "|", "&", ";", "!", "#", "%", "*", "?",
		"~", "=", ":", ",", "-", "/", "^",
		"$(touch pwned)", "`touch pwned`", "${HOME}", "#SBATCH ", "{{.RunDir}}", "%j", "'''", `"""`, `\u0041`, "\r\n", "a", "0", "é",
	}
	texts := make([]string, n)
	for i := range texts {
		var text strings.Builder
		for range rng.IntN(24) {
			switch rng.IntN(4) {
			case 0:
				if r := rune(1 + rng.IntN(utf8.MaxRune)); utf8.ValidRune(r) {
					text.WriteRune(r)
				}
			case 1:
				text.WriteByte(byte(1 + rng.IntN(127)))
			default:
				text.WriteString(means[rng.IntN(len(means))])
			}
		}
		texts[i] = text.String()
	}
	return texts
}

// recordingJob returns the job file of one rank, which writes its arguments and its environment variables byte for byte into files of out/.
func recordingJob(t *testing.T, name string, texts []string) string {
	t.Helper()
	var env strings.Builder
	for i, text := range texts {
		env.WriteString("HOSTILE_" + strconv.Itoa(i) + " = " + strings.Trim(quoteTOML(t, text), "[]") + "\n")
	}
	command := append([]string{"sh", "-c", recordWorker, "sh"}, texts...)
	return "schema = 1\nname = \"" + name + "\"\n[slurm]\nnodes = 1\ntime = \"00:05:00\"\n[setup.env]\nCOUNT = \"" +
		strconv.Itoa(len(texts)) + "\"\n" +
		env.String() + "[launch]\nnproc_per_node = 1\ncommand = " + quoteTOML(t, command...) + "\n"
}

// reached compares what a recordingJob has written with the texts.
func reached(t *testing.T, out string, texts []string) {
	t.Helper()
	for i, want := range texts {
		for _, kind := range []string{"arg.", "env."} {
			if got, err := os.ReadFile(filepath.Join(out, kind+strconv.Itoa(i))); err != nil || string(got) != want {
				t.Errorf("%s%d is %q (%v), want %q", kind, i, got, err, want)
			}
		}
	}
}

// oneTaskSrun starts a command as the only task of a step of one node.
const oneTaskSrun = `#!/bin/sh
[ "$1" != --mpi=list ] || exit 0
while [ "${1#--}" != "$1" ]; do shift; done
export SLURM_STEP_ID=0 SLURM_STEPID=0 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_NTASKS=1 SLURM_NPROCS=1 SLURM_STEP_NUM_TASKS=1 \
	SLURM_STEP_NUM_NODES=1 SLURM_STEP_NODELIST=n1 SLURM_STEP_TASKS_PER_NODE=1 SLURM_GTIDS=0 SLURMD_NODENAME=n1 SLURM_LAUNCH_NODE_IPADDR=127.0.0.1
exec "$@"
`

// Every text of a job file reaches the worker's arguments and environment unchanged: it passes through the run directory, the rendered
// batch script, which the test runs, and the agent. The row Quoting of TestSlurm checks the same with sbatch.
func TestAnyTextReachesTheWorker(t *testing.T) {
	t.Parallel()
	for _, seed := range []uint64{1, 2, rand.Uint64()} {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			texts := append(slices.Clone(hostile), anyTexts(rand.New(rand.NewPCG(seed, 19)), 100)...)
			q, dir := newQueue(t), t.TempDir()
			q.must(os.WriteFile(filepath.Join(q.dir, "srun"), []byte(oneTaskSrun), 0o700))
			bring(t, dir, "job.toml", []byte(recordingJob(t, "any", texts)))
			q.must(os.Mkdir(filepath.Join(dir, "out"), 0o700))

			submit, said := command(dir, "submit", "job.toml", "--parsable")
			submit.Env = q.environ()
			if err := submit.Run(); err != nil {
				t.Fatalf("submit: %v\n%s", err, said)
			}
			job, err := os.ReadFile(filepath.Join(q.dir, "jobs", "500"))
			q.must(err)
			_, script, _ := strings.Cut(strings.TrimSpace(string(job)), " ")
			batch := exec.Command("bash", script)
			batch.Dir = dir
			batch.Env = append(q.environ(), "SLURM_JOB_ID=500", "SLURM_JOBID=500", "SLURM_JOB_NAME=any", "SLURM_JOB_NODELIST=n1",
				"SLURM_JOB_NUM_NODES=1",
				"SLURM_NNODES=1", "SLURM_NODELIST=n1", "SLURM_TASKS_PER_NODE=1", "SLURM_JOB_CPUS_PER_NODE=1", "SLURM_SUBMIT_DIR="+dir)
			if out, err := batch.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", script, err, out)
			}
			reached(t, filepath.Join(dir, "out"), texts)
			nothingPwned(t, dir)
		})
	}
}
