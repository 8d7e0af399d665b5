package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ddpbatch/internal/exit"
	"ddpbatch/templates"
)

// commandJob writes a job file that runs a command.
func (c *cluster) commandJob(name string, slurm string, nproc string, command ...string) string {
	c.t.Helper()
	return c.write(name+".toml", "schema = 1\nname = \""+name+"\"\n[slurm]\ntime = \"00:05:00\"\n"+slurm+
		"\n[launch]\nnproc_per_node = "+nproc+"\ngrace = \"10s\"\ncommand = "+quoteTOML(c.t, command...)+"\n")
}

// testSlurmRefused submits jobs that Slurm refuses. submit prints Slurm's own words, and nothing stays behind.
func testSlurmRefused(t *testing.T, c *cluster) {
	c.commandJob("refused", "nodes = 1", "1", "true")
	// the messages are those of Slurm 22.05 (slurm/testdata/22.05/sbatch-errors)
	for _, row := range []struct{ set, words string }{
		{"slurm.gpus_per_node=99", "Requested node configuration is not available"},
		{"slurm.partition=nowhere", "Invalid partition name specified"},
		{"slurm.nodelist=nobody", "Invalid node name specified"},
	} {
		for _, args := range [][]string{{"--wait"}, {"--parsable"}, {"--test-only"}} {
			out := c.exits(exit.Refused, "ddpbatch", append([]string{"submit", "refused.toml", "--set", row.set}, args...)...)
			if !strings.Contains(out.stderr, row.words) || out.stdout != "" {
				t.Errorf("%s %s: want %q, got %v", row.set, args, row.words, out)
			}
		}
	}
	nothingSubmitted(t, c)
}

// testSlurmTestOnly checks that --test-only and --dry-run print what Slurm would do, and submit nothing.
func testSlurmTestOnly(t *testing.T, c *cluster) {
	job := c.commandJob("asked", "nodes = 2\ngpus_per_node = 2", "2", "true")
	if out := c.ok("ddpbatch", "submit", job, "--test-only"); !strings.Contains(out.stdout, "to start at") {
		t.Errorf("--test-only: %v", out)
	}
	// a value beyond the partition's limits is reported with its place; Slurm would queue the job and never start it
	for _, command := range [][]string{{"check", "--slurm"}, {"submit", "--test-only"}} {
		out := c.run("ddpbatch", append(command, job, "--set", "slurm.nodes=1000", "--set", "slurm.gpus_per_node=77")...)
		for _, want := range []string{"--set slurm.nodes: the job asks for 1000 nodes",
			"--set slurm.gpus_per_node: the job asks for 77 GPUs per node"} {
			if !strings.Contains(out.stderr, want) {
				t.Errorf("%s without %q: %v", command, want, out)
			}
		}
		if out := c.run("ddpbatch", append(command, job)...); strings.Contains(out.stderr, "(warning)") {
			t.Errorf("%s of a job that the partition takes: %v", command, out)
		}
	}
	out := c.ok("ddpbatch", "submit", "--dry-run", job)
	for _, line := range []string{"#!/bin/bash", "#SBATCH --nodes=2", "#SBATCH --gpus-per-node=2", "#SBATCH --job-name=asked"} {
		if !slices.Contains(strings.Split(out.stdout, "\n"), line) {
			t.Errorf("--dry-run prints no line %q:\n%s", line, out.stdout)
		}
	}
	// --dry-run prints a script that bash can parse and that sbatch would accept
	script := c.write("dry-run.sh", out.stdout)
	c.ok("bash", "-n", script)
	c.ok("sbatch", "--test-only", script)
	// sbatch would also accept each starter, with settings for this cluster
	for _, s := range templates.Starters() {
		c.write(s.Name+".toml", s.Text)
		words := []string{"submit", s.Name + ".toml", "--test-only", "--skip-data-check", "--set", "launch.nproc_per_node=1", "--set",
			"slurm.cpus_per_task=1"}
		if strings.Contains(s.Text, "\nmem = ") {
			words = append(words, "--set", "slurm.mem=1G")
		}
		if strings.Contains(s.Text, "\ngpus_per_node = ") {
			words = append(words, "--set", "slurm.gpus_per_node=2", "--set", "slurm.partition=main")
		}
		if out := c.ok("ddpbatch", words...); !strings.Contains(out.stdout, "to start at") {
			t.Errorf("%s: %v", s.Name, out)
		}
	}
	nothingSubmitted(t, c)
}

// nothingSubmitted checks that Slurm took no job of the test, and that there is no run.
func nothingSubmitted(t *testing.T, c *cluster) {
	t.Helper()
	for _, job := range c.jobs("-t", "all") {
		// Slurm itself remembers some jobs that it refused
		if job[2] != "FAILED" || job[3] != "BadConstraints" {
			t.Errorf("there is a job: %q", job)
		}
	}
	entries, err := os.ReadDir(filepath.Join(c.dir, "runs"))
	if err != nil && !os.IsNotExist(err) {
		t.Error(err)
	}
	for _, e := range entries {
		t.Errorf("left behind: runs/%s", e.Name())
	}
}

// Tasks of one srun that do not know about each other must not each train alone.
func testSlurmSingleton(t *testing.T, c *cluster) {
	c.write("job.toml", smallJob)
	out := c.exits(exit.Usage, "srun", "-N2", "-n4", "ddpbatch", "train", "job.toml")
	if n := strings.Count(out.stderr, "SLURM_NTASKS is 4"); n != 4 {
		t.Errorf("%d of 4 tasks say why: %v", n, out)
	}
	nothing, err := filepath.Glob(filepath.Join(c.dir, "runs", "*"))
	if err != nil || len(nothing) > 0 {
		t.Errorf("left behind: %q, %v", nothing, err)
	}
	out = c.exits(exit.Usage, "srun", "-N2", "-n4", "ddpbatch", "run", "--standalone", "--", "true")
	if !strings.Contains(out.stderr, "SLURM_NTASKS is 4") {
		t.Errorf("run --standalone: %v", out)
	}
	printed := c.batch("-N2 -n4", "ddpbatch env; echo env $?\nddpbatch run -- true; echo run $?\nddpbatch train job.toml; echo train $?\n")
	for _, line := range []string{"env 2", "run 2", "train 2"} {
		if !slices.Contains(strings.Split(printed, "\n"), line) {
			t.Errorf("in a batch script that forgot srun, there is no %q:\n%s", line, printed)
		}
	}
}
