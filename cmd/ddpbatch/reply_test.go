package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"ddpbatch/internal/exit"
)

// object decodes the output of a command with --json, which must be one object.
func object(t *testing.T, out string) map[string]any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(out))
	var v map[string]any
	if err := d.Decode(&v); err != nil || d.More() {
		t.Fatalf("%v: want one object, not %q", err, out)
	}
	return v
}

func wantFields(t *testing.T, what string, got map[string]any, want string) {
	t.Helper()
	for key, value := range object(t, want) {
		if !reflect.DeepEqual(got[key], value) {
			t.Errorf("%s: %s is %v, want %v", what, key, got[key], value)
		}
	}
}

func TestSubmitRepliesInJSON(t *testing.T) {
	q := newQueue(t)
	parent, run := q.resumable()
	q.must(os.WriteFile(filepath.Join(parent, "other.toml"), []byte(`name = "x"
[slurm]
partition = "gpu"
contiguous = true
nodes = 2
[setup.env]
API_TOKEN = "abc"
[launch]
command = ["true"]
nproc_per_node = [2, 1]
`), 0o600))
	q.says("reason", "PartitionConfig")
	for id, args := range map[string][]string{
		"500": {"submit", "other.toml", "--json", "--set", "setup.env.API_TOKEN=hunter2", "--", "--qos=high"},
		"501": {"resume", run, "--json", "--", "--qos=high"},
	} {
		q.says("next", id)
		code, out, errs := q.run(parent, args...)
		if code != 0 || errs != "" || strings.Contains(out, "hunter2") {
			t.Errorf("%s: %d, %q, %q", args, code, errs, out)
		}
		got := object(t, out)
		wantFields(t, id, got, `{"jobs": ["`+id+`"]}`)
		if dir, _ := got["run_dir"].(string); !filepath.IsAbs(dir) || id == "501" && dir != run {
			t.Errorf("%s: run directory %q", id, dir)
		}
		warnings, _ := got["warnings"].([]any)
		if len(warnings) != 1 ||
			!strings.HasPrefix(warnings[0].(string), "job "+id+" will not start in its present form: Slurm's reason is PartitionConfig; ") {
			t.Errorf("%s: warnings %q", id, warnings)
		}
		if id == "500" {
			wantFields(t, id, got, `{"name": "x"}`)
			wantFields(t, id, got["asked"].(map[string]any), `{
				"summary": "x runs true on 2 nodes x 2,1 ranks", "nodes": 2, "nproc_per_node": [2, 1], "sbatch": ["--qos=high"],
				"slurm": {"partition": "gpu", "contiguous": true, "nodes": "2"}, "set": ["setup.env.API_TOKEN=***"]}`)
		}
	}
}

// The reply for a chain has the ids of all links, and the reply for a sweep has the id of its array.
func TestChainsAndSweepsReplyInJSON(t *testing.T) {
	q := newQueue(t)
	parent := t.TempDir()
	q.chainFile(parent, `dependency = "afterok:7"`)
	q.says("jobs/450", "RUNNING elsewhere")
	reply := func(args ...string) map[string]any {
		t.Helper()
		code, out, errs := q.run(parent, append(args, "--json")...)
		if code != 0 || errs != "" {
			t.Fatalf("%s: %d, %s", args, code, errs)
		}
		return object(t, out)
	}
	asked := func(what string, got map[string]any, want string) {
		t.Helper()
		wantFields(t, what, got["asked"].(map[string]any), want)
	}

	const first = `["--dependency=afterok:7,afternotok:450"]`
	got := reply("submit", "job.toml", "--after", "450:notok", "--dry-run")
	asked("dry run", got, `{"links": 3, "elements": 0, "sbatch": `+first+`}`)
	wantFields(t, "dry run", got, `{"jobs": [],
		"command": ["sbatch", "--parsable", "--dependency=afterok:7,afternotok:450", "script.sh"],
		"later_command": ["sbatch", "--parsable", "--dependency=afterany:ID:...", "script.sh"]}`)
	got = reply("submit", "job.toml", "--after", "450:notok")
	asked("chain", got, `{"links": 3, "elements": 0, "sbatch": `+first+`}`)
	wantFields(t, "chain", got, `{"jobs": ["500", "501", "502"]}`)
	wantFields(t, "cancel", reply("cancel", "501"), `{"jobs": ["500", "501", "502"]}`)
	got = reply("resume", "502", "--set", "slurm.chain=2")
	asked("resumed chain", got, `{"links": 2, "sbatch": []}`)
	wantFields(t, "resumed chain", got, `{"jobs": ["503", "504"]}`)
	if code, out, errs := q.run(parent, "submit", "job.toml", "--parsable"); code != 0 || out != "505\n" {
		t.Errorf("--parsable: %d, %q, %s", code, out, errs)
	}

	got = reply("submit", "job.toml", "--set", "slurm.chain=1", "--set", "sweep.setup.env.A_TOKEN=['hunter2', 'hunter3']")
	asked("sweep", got, `{"links": 0, "elements": 2, "set": ["slurm.chain=1", "sweep.setup.env.A_TOKEN=***"]}`)
	asked("sweep", got, `{"slurm": {"array": "0-1", "dependency": "afterok:7"}}`)
	wantFields(t, "sweep", got, `{"jobs": ["508"]}`)
}

// If nothing is submitted, --json prints no object, and standard error and the exit code are the same as without it.
func TestReplyOfAFailureIsItsSentence(t *testing.T) {
	q := newQueue(t)
	parent, _ := q.resumable()
	q.must(os.WriteFile(filepath.Join(parent, "job.toml"), []byte("name = \"x\"\n[launch]\ncommand = [\"true\"]\n"), 0o600))
	q.must(os.WriteFile(filepath.Join(parent, "bad.toml"), []byte("name = 1\n"), 0o600))
	q.says("mode", "refuse")
	for _, args := range [][]string{{"submit", "job.toml"}, {"submit", "bad.toml"}, {"render", "bad.toml"}, {"resume", "999"},
		{"simulate", "bad.toml"}, {"rehearse", "bad.toml"}} {
		code, _, errs := q.run(parent, args...)
		codeJSON, out, errsJSON := q.run(parent, append(args, "--json")...)
		if code == 0 || codeJSON != code || out != "" || errsJSON != errs || errs == "" {
			t.Errorf("%s: %d, %q; with --json %d, %q, %q", args, code, errs, codeJSON, errsJSON, out)
		}
	}
	for _, args := range [][]string{{"submit", "job.toml", "--parsable"}, {"submit", "job.toml", "--follow"},
		{"resume", "500", "--follow"}} {
		if code, out, errs := q.run(parent, append(args, "--json")...); code != exit.Usage || out != "" ||
			!strings.Contains(errs, "request different outputs") {
			t.Errorf("%s --json: %d, %q, %q", args, code, out, errs)
		}
	}
}

func TestCancelRepliesWhatItCancelled(t *testing.T) {
	q := newQueue(t)
	parent := t.TempDir()
	q.must(os.WriteFile(filepath.Join(parent, "job.toml"), []byte("name = \"x\"\n[launch]\ncommand = [\"true\"]\n"), 0o600))
	code, out, errs := q.run(parent, "submit", "--json", "job.toml")
	if code != 0 {
		t.Fatal(errs)
	}
	run := object(t, out)["run_dir"].(string)
	code, out, errs = q.run(parent, "cancel", "--json", "500", "999")
	if code != exit.Usage || !strings.Contains(errs, `"999"`) {
		t.Errorf("%d, %q", code, errs)
	}
	got := object(t, out)
	wantFields(t, "cancel", got, `{"jobs": ["500"], "warnings": []}`)
	runs := got["runs"].([]any)
	if len(runs) != 1 {
		t.Fatalf("runs: %v", runs)
	}
	one := runs[0].(map[string]any)
	if one["run_dir"] != run || !strings.HasSuffix(one["resume"].(string), "resume "+run) {
		t.Errorf("run: %v", one)
	}
	code, out, _ = q.run(parent, "cancel", "--json", "500") // it has ended
	if code != exit.Usage {
		t.Errorf("once more: %d", code)
	}
	wantFields(t, "once more", object(t, out), `{"jobs": [], "runs": [], "warnings": []}`)
}

func TestReplyHoldsWarningsBack(t *testing.T) {
	var errs bytes.Buffer
	e := &env{Err: &errs}
	err := e.replying(true, func(e *env) error {
		e.Err.Write([]byte("ddpbatch: one\nddpbatch: one\ntwo \x1b[31m\n"))
		e.log().With("folder", "/a").Warn("three", "token", "API_TOKEN=hunter2")
		if got, want := e.reply.warnings(),
			[]string{"one", "two  [31m", "three (folder /a, token API_TOKEN=***)"}; !reflect.DeepEqual(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		e.Err.Write([]byte("after\n"))
		return nil
	})
	if err != nil || errs.String() != "after\n" {
		t.Errorf("%v, %q", err, errs.String())
	}
	errs.Reset()
	e.replying(true, func(e *env) error { e.Err.Write([]byte("kept\n")); return nil })
	if errs.String() != "kept\n" {
		t.Errorf("without an object: %q", errs.String())
	}
}

func TestOverridesAreBlanked(t *testing.T) {
	sets := []string{
		"a=b", "setup.env.A_TOKEN=x", `sweep={"setup.env.A_TOKEN" = ["x", "y"]}`, `sweep.setup.env.A_KEY=["x", "y"]`,
		"launch.command=['sh', 'A_TOKEN=x y']",
		"nothing",
	}
	want := []string{"a=b", "setup.env.A_TOKEN=***", "sweep=***", "sweep.setup.env.A_KEY=***", "launch.command=***", "nothing"}
	if got := blankedSets(sets); !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// For each array of a sweep, the reply lists the arguments with which sbatch was called for it.
func TestRepliesOfASweepInPieces(t *testing.T) {
	q := newQueue(t)
	parent := t.TempDir()
	q.must(os.WriteFile(filepath.Join(q.dir, "scontrol"), []byte("#!/bin/sh\nprintf 'KillWait = 30 sec\\nMaxArraySize = 2\\n'\n"), 0o700))
	job := "name = \"x\"\n[launch]\ncommand = [\"true\"]\n[sweep]\nparallel = 3\n\"setup.env.A\" = [1, 2, 3, 4]\n"
	q.must(os.WriteFile(filepath.Join(parent, "job.toml"), []byte(job), 0o600))
	want := `{"elements": 4, "sbatch": ["--qos=high"], "arrays": [
		["--array=0-1%2", "--export=ALL,DDPBATCH_ARRAY_OFFSET=0"], ["--array=0-1%1", "--export=ALL,DDPBATCH_ARRAY_OFFSET=2"]]}`
	for _, command := range []string{"submit job.toml --test-only", "submit job.toml", "resume 500"} {
		args := append(strings.Fields(command), "--json", "--", "--qos=high")
		before := len(q.sbatchCalls())
		code, out, errs := q.run(parent, args...)
		if code != 0 {
			t.Fatalf("%s: %d, %s%s", command, code, out, errs)
		}
		reply := object(t, out)
		asked, _ := reply["asked"].(map[string]any)
		wantFields(t, command, asked, want)
		jobs, _ := reply["jobs"].([]any)
		arrays, _ := asked["arrays"].([]any)
		calls := q.sbatchCalls()[before:]
		if strings.Contains(command, "--test-only") {
			q.says("next", "500") // this sbatch has used up the number
			continue
		}
		if len(jobs) != len(arrays) || len(calls) != len(arrays) {
			t.Fatalf("%s: jobs %v, arrays %v, sbatch called with %q", command, jobs, arrays, calls)
		}
		for i, words := range arrays {
			for _, word := range words.([]any) {
				if !strings.Contains(calls[i]+" ", " "+word.(string)+" ") {
					t.Errorf("%s: sbatch called with %q, which lacks %s", command, calls[i], word)
				}
			}
		}
		for i := range jobs {
			q.must(os.WriteFile(filepath.Join(q.dir, "jobs", "50"+strconv.Itoa(i)), []byte("CANCELLED x\n"), 0o600))
		}
	}
}
