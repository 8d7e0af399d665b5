package slurm

import (
	"strings"
	"testing"
)

func TestCheckExtra(t *testing.T) {
	for _, word := range []string{"--switches=1", "--site-option", "--extra=x", "-x", "-pgpu", "-Hpgpu", "--comment=a b", "--output-x=1", "--wait-all-nodes=1"} {
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
		"--clusters=lab":    "SLURM_CLUSTERS",
		"--cluster=lab":     "SLURM_CLUSTERS",
		"-Mlab":             "SLURM_CLUSTERS",
		"-HMlab":            "SLURM_CLUSTERS", // -H -M lab
	} {
		err := CheckExtra(word)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v; want %q in the error", word, err, says)
		}
	}
}
