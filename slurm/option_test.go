package slurm

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// sbatch 22.05.8 also refuses all that do not have the right form, except the last two, which it accepts. For numbers that are too large,
// its arithmetic overflows.
func TestSizesAreCheckedAsSbatchDoes(t *testing.T) {
	for _, s := range []string{
		"0", "1", "1500", "1K", "1k", "1KB", "1kb", "512M", "32G", "32g", "32GB", "2T", "007",
		"9007199254740991K", "8796093022207", "8589934591G", "8388607T",
	} {
		if err := checkSize(s); err != nil {
			t.Error(err)
		}
	}
	for _, s := range []string{
		"", "G", "B", "GB", "12Q", "1P", "1.5G", "-1", "1b", "1BB", "1KBB", "1KiB", "1Gi", "1K1", "1 G", "32G ", "32G\n", "0x10", "1_000",
		"+1", " 1",
	} {
		if err := checkSize(s); err == nil || !strings.Contains(err.Error(), "whole number of MiB") {
			t.Errorf("%q: %v", s, err)
		}
	}
	for _, s := range []string{"9007199254740992K", "8796093022208", "8796093022208mb", "8589934592G", "8388608T", "99999999999999999999"} {
		if err := checkSize(s); err == nil || !strings.Contains(err.Error(), "8 EiB") {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func TestParseOption(t *testing.T) {
	for _, c := range []struct {
		key   string
		value any
		want  string // the word that sbatch gets; "" if there is none
	}{
		{"partition", "gpu", "--partition=gpu"},
		{"nodes", int64(2), "--nodes=2"},
		{"gpus_per_node", int64(4), "--gpus-per-node=4"},
		{"gpus_per_node", "a100:4", "--gpus-per-node=a100:4"},
		{"mem", "32G", "--mem=32G"},
		{"mem", int64(4000), "--mem=4000"},
		{"mem", int64(0), "--mem=0"},
		{"time", "01:00:00", "--time=01:00:00"},
		{"time", "1-12:00:00", "--time=1-12:00:00"},
		{"time", int64(90), "--time=90"},
		{"time", "90", "--time=90"},
		{"array", "1-10%2", "--array=1-10%2"},
		{"array", int64(7), "--array=7"},
		{"dependency", "afterok:123", "--dependency=afterok:123"},
		{"exclusive", true, "--exclusive"},
		{"exclusive", "user", "--exclusive=user"},
		{"exclusive", false, ""},
		{"hold", true, "--hold"},
		{"hold", false, ""},
		{"nice", int64(-5), "--nice=-5"},
		{"nice", true, "--nice"},
		{"requeue", "expedite", "--requeue=expedite"},
		{"kill_on_invalid_dep", true, "--kill-on-invalid-dep=yes"},
		{"kill_on_invalid_dep", "no", "--kill-on-invalid-dep=no"},
		{"wait_all_nodes", true, "--wait-all-nodes=1"},
		{"wait_all_nodes", int64(0), "--wait-all-nodes=0"},
		{"core_spec", int64(0), "--core-spec=0"}, {"thread_spec", int64(1), "--thread-spec=1"},
		{"comment", `it's "mine" #1 $HOME`, `--comment=it's "mine" #1 $HOME`},
		{"switches", "1@10:00", "--switches=1@10:00"},
	} {
		option, err := ParseOption(c.key, c.value)
		if err != nil {
			t.Errorf("%s = %v: %v", c.key, c.value, err)
			continue
		}
		word := ""
		if option.Name != "" {
			word = option.word()
		}
		if word != c.want {
			t.Errorf("%s = %v: got %q, want %q", c.key, c.value, word, c.want)
		}
	}
}

func TestParseOptionRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		key   string
		value any
		says  string // part of the message that says what to write
	}{
		"unknown key":         {"nodez", int64(2), "not an option of sbatch"},
		"empty key":           {"", "x", "not an option of sbatch"},
		"dashes":              {"gpus-per-node", int64(1), "write gpus_per_node"},
		"leading dashes":      {"--mem", "1G", "write mem"},
		"job name":            {"job_name", "x", "set name"},
		"chdir":               {"chdir", "/", "set workdir"},
		"output":              {"output", "x", "run directory"},
		"ntasks per node":     {"ntasks_per_node", int64(4), "launch.nproc_per_node"},
		"export":              {"export", "ALL", "[setup]"},
		"wrap":                {"wrap", "true", "launch.command"},
		"test only":           {"test_only", true, "submit --test-only"},
		"quiet":               {"quiet", true, "job's id"},
		"a range of nodes":    {"nodes", "2-4", "a whole number from 1"},
		"no nodes":            {"nodes", int64(0), "from 1 to"},
		"no threads kept":     {"thread_spec", int64(0), "from 1 to"},
		"negative":            {"mincpus", int64(-1), "from 1 to"},
		"number too large":    {"nodes", int64(1) << 40, "from 1 to"},
		"number as name":      {"partition", int64(5), "text in quotes"},
		"float":               {"time", 1.5, "whole number of minutes"},
		"time without quotes": {"time", time.Date(0, 1, 1, 1, 30, 0, 0, time.Local), `"01:30:00"`},
		"list":                {"mail_type", []any{"END"}, "text in quotes"},
		"bad time":            {"time", "tomorrow", "time"},
		"bad size":            {"mem", "12Q", "size"},
		"negative size":       {"mem", int64(-1), "from 0 to"},
		"flag as text":        {"hold", "true", "true or false"},
		"true as text":        {"partition", true, "text in quotes"},
		"empty text":          {"account", "", "remove the key"},
		"blank text":          {"account", "  ", "remove the key"},
		"newline":             {"comment", "x\n#SBATCH --uid=0", "control character"},
		"nul":                 {"comment", "x\x00y", "control character"},
		"not UTF-8":           {"comment", "x\xff", "UTF-8"},
		"two for a switch":    {"wait_all_nodes", int64(2), "0 or 1"},
		"maybe":               {"kill_on_invalid_dep", "maybe", `"yes" or "no"`},
	} {
		option, err := ParseOption(c.key, c.value)
		if err == nil {
			t.Errorf("%s: taken as %+v", name, option)
			continue
		}
		if !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), c.key) {
			t.Errorf("%s: %v; want the key and %q in it", name, err, c.says)
		}
		if got, want := errors.Is(err, ErrUnknownOption), strings.Contains(c.says, "not an option"); got != want {
			t.Errorf("%s: %v: matches ErrUnknownOption: %t, want %t", name, err, got, want)
		}
	}
}

func TestOptionsGet(t *testing.T) {
	o := Options{List: []Option{{Name: "mem", Value: "1G"}, {Name: "hold", Flag: true}, {}, {Name: "mem", Value: "2G"},
		{Name: "gpus-per-node", Value: "4"}}, Skip: []string{"mem"}}
	for name, want := range map[string]string{"mem": "2G", "--mem": "2G", "gpus_per_node": "4", "gpus-per-node": "4", "hold": ""} {
		if got, ok := o.Get(name); !ok || got != want {
			t.Errorf("%s: %q, %t; want %q", name, got, ok, want)
		}
	}
	for _, name := range []string{"nodes", ""} {
		if got, ok := o.Get(name); ok {
			t.Errorf("%q is there: %q", name, got)
		}
	}
}

func FuzzParseOption(f *testing.F) {
	keys := OptionKeys()
	for i, s := range hostileWords {
		f.Add(keys[i%len(keys)], s, int64(i))
	}
	f.Fuzz(func(t *testing.T, key, text string, number int64) {
		for _, value := range []any{text, number, number%2 == 0, float64(number), nil} {
			option, err := ParseOption(key, value)
			if err != nil {
				if strings.ContainsAny(err.Error(), "\n\r\x00") {
					t.Fatalf("key %q, value %v: the error has several lines: %q", key, value, err)
				}
				continue
			}
			if option.Name == "" {
				continue
			}
			words, err := readDirective(quoteDirective(option.word()))
			if err != nil || len(words) != 1 || words[0] != option.word() {
				t.Fatalf("key %q, value %v: Slurm would read %q (%v)", key, value, words, err)
			}
		}
	})
}

func TestCheckExtra(t *testing.T) {
	for _, word := range []string{"--switches=1", "--site-option", "--extra=x", "-x", "-pgpu", "-Hpgpu", "--comment=a b", "--output-x=1",
		"--wait-all-nodes=1"} {
		if err := CheckExtra(word); err != nil {
			t.Errorf("%s: %v", word, err)
		}
	}
}

func TestCheckExtraRefuses(t *testing.T) {
	for word, says := range map[string]string{
		"":                  "begins with a dash",
		"-":                 "begins with a dash",
		"--":                "begins with a dash",
		"--=x":              "begins with a dash",
		"switches=1":        "begins with a dash",
		"script.sh":         "begins with a dash",
		"--output=/x":       "run directory",
		"--outp=/x":         "--output",
		"--job-name=x":      "set name",
		"--job=x":           "--job-name",
		"--j=x":             "--job-name",
		"-Jx":               "set name",
		"-HJx":              "set name", // -H -J x
		"-o":                "run directory",
		"--nodes=4":         "nodes = ...",
		"-N4":               "nodes = ...",
		"--node=4":          "--nodes",
		"--array=1-2":       "array = ...",
		"--cpus-per-task=2": "cpus_per_task = ...",
		"--parsable":        "submit --parsable",
		"--wrap=true":       "launch.command",
		"--comment=a\nb":    "control character",
		"--export=NONE":     "[setup]",
		"--clusters=lab":    "write it as clusters = ... in [slurm]",
		"--cluster=lab":     "--clusters",
		"-Mlab":             "write it as clusters = ... in [slurm]",
		"-HMlab":            "write it as clusters = ... in [slurm]", // -H -M lab
	} {
		err := CheckExtra(word)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v; want %q in the error", word, err, says)
		}
	}
}

func TestWordsThatCountGPUsByTasks(t *testing.T) {
	for word, refused := range map[string]bool{
		"--gpus-per-task=1": true, "--gpus-per-task": true, "--gpus-per-t=1": true, "--gpus-per-socket=2": true,
		"--tres-per-task=cpu:4,gres/gpu:1": true,
		"--tres-per-task=cpu:4":            false, "--gpus-per-node=4": false, "--gpus=4": false, "-G4": false, "--switches=1": false,
	} {
		if err := CheckAgentWords([]string{"--qos=x", word}); (err != nil) != refused {
			t.Errorf("%s: %v", word, err)
		}
	}
	script := Script{Name: "x", RunDir: "/r", WorkDir: "/w", Nodes: 1, Mode: "agent", Nproc: 2, Words: []string{"--gpus-per-task=1"}}
	if _, err := script.Render("#!/bin/sh\n"); err == nil || !strings.Contains(err.Error(), "set slurm.gpus_per_node") {
		t.Errorf("in agent mode: %v", err)
	}
	script.Mode = "task"
	if _, err := script.Render("#!/bin/sh\n"); err != nil {
		t.Errorf("in task mode: %v", err)
	}
}
