package slurm

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestSettingsOfRealSlurm(t *testing.T) {
	for _, tt := range []struct {
		dir         string
		answered    string
		year, month int
		killWait    time.Duration
		want        map[string]string // by Get
	}{
		{"22.05", "2026-11-21T00:29:10", 22, 5, 5 * time.Second, map[string]string{
			"ProctrackType": "proctrack/linuxproc", "PreemptMode": "REQUEUE", "AccountingStorageType": "accounting_storage/slurmdbd",
			"HealthCheckProgram": "",
		}},
		{"25.11", "2026-11-23T16:54:27", 25, 11, 10 * time.Second, map[string]string{
			"ProctrackType": "proctrack/linuxproc", "PropagateResourceLimits": "ALL", "AccountingStorageType": "", "JobRequeue": "1",
		}},
	} {
		text, err := os.ReadFile(filepath.Join("testdata", tt.dir, "config", "scontrol-show-config.txt"))
		if err != nil {
			t.Fatal(err)
		}
		p := &pretend{answers: map[string]Output{"scontrol": {Stdout: text}}}
		s, err := p.client().Settings(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if at := s.Answered().Format("2006-01-02T15:04:05"); at != tt.answered {
			t.Errorf("%s: answered at %s", tt.dir, at)
		}
		if year, month := s.Release(); year != tt.year || month != tt.month {
			t.Errorf("%s: release %d.%d", tt.dir, year, month)
		}
		if wait, err := s.KillWait(); err != nil || wait != tt.killWait {
			t.Errorf("%s: KillWait %v, %v", tt.dir, wait, err)
		}
		for name, want := range tt.want {
			if got := s.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", tt.dir, name, got, want)
			}
		}
	}
}

func TestMPIPlugins(t *testing.T) {
	for text, want := range map[string][]string{
		// srun of 22.05.8 and of 25.11.7, and the format of releases before 21.08
		"MPI plugin types are...\n\tpmix\n\tnone\n\tcray_shasta\n\tpmi2\nspecific pmix plugin versions available: " +
			"pmix_v4\n": {"pmix", "none",
			"cray_shasta", "pmi2"},
		"MPI plugin types are...\n\tnone\n\tcray_shasta\n\tpmi2\n": {"none",
			"cray_shasta", "pmi2"},
		"srun: MPI types are...\nsrun: none\nsrun: pmi2\n": {"none", "pmi2"},
		"": nil,
	} {
		p := &pretend{answers: map[string]Output{"srun": {Stderr: []byte(text), Code: 1}}}
		if got, err := p.client().MPIPlugins(t.Context()); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	if _, err := (&pretend{}).client().MPIPlugins(t.Context()); !errors.Is(err, ErrNoSlurm) {
		t.Error(err)
	}
}

func FuzzSettings(f *testing.F) {
	f.Add("Configuration data as of 2026-11-21T00:29:10\nKillWait = 30 sec\nSLURM_VERSION = 22.05.8\n", "MPI plugin types are...\n\tpmi2\n")
	f.Add("=\n==\nSLURM_VERSION=-1.-2\nKillWait==", "srun:srun:\n")
	f.Fuzz(func(t *testing.T, config, list string) {
		s := parseSettings([]byte(config))
		if year, month := s.Release(); year < 0 || month < 0 {
			t.Errorf("release %d.%d", year, month)
		}
		if wait, err := s.KillWait(); err == nil && (wait < 0 || wait > 65535*time.Second) {
			t.Errorf("KillWait %v", wait)
		}
		for _, name := range parseMPIPlugins(list) {
			if name == "" {
				t.Errorf("a plugin without a name in %q", list)
			}
		}
	})
}
