package slurm

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

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
	said := "Welcome\n" + line(script, "7", "PENDING") + line(other, "8", "RUNNING") + line(filepath.Join(link, "script.sh"), "9_[1-3]", "PENDING") +
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
	const format = ` -o '%o` + separator + `%i` + separator + `%A` + separator + `%T` + separator + `%r` + separator + `%D` + separator + `%N` + separator +
		`%S` + separator + `%e` + separator + `%l` + separator + `%j'`
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

func TestStuck(t *testing.T) {
	for _, test := range []struct {
		state, reason string
		want          bool
	}{
		{"PENDING", "PartitionConfig", true}, {"PENDING", "AssocMaxNodePerJobLimit", true}, {"PENDING", "QOSMaxWallDurationPerJobLimit", true},
		{"PENDING", "AssocMaxCpuMinutesPerJob", true}, {"PENDING", "Priority", false}, {"PENDING", "Resources", false}, {"PENDING", "AssocGrpCpuLimit", false},
		{"PENDING", "None", false}, {"RUNNING", "PartitionConfig", false},
	} {
		if got := (JobStatus{State: test.state, Reason: test.reason}).Stuck(); got != test.want {
			t.Errorf("%s for %s: stuck is %t", test.state, test.reason, got)
		}
	}
}
