package health

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/vfs"
)

// sound is a machine without any fault.
func sound() *Machine {
	return &Machine{
		Root:     fstest.MapFS{},
		SpaceOf:  func(string) (vfs.Space, error) { return vfs.Space{Free: 1 << 30, Total: 2 << 30}, nil },
		TakeFile: func(string) error { return nil },
		Limits:   Limits{OpenFiles: 1024, Processes: 4096, LockedMemory: 8 << 20},
	}
}

// fullFolders refuses new files in all folders except those in but.
func fullFolders(but ...string) func(string) error {
	return func(folder string) error {
		for _, other := range but {
			if folder == other {
				return nil
			}
		}
		return &fs.PathError{Op: "open", Path: folder + "/x", Err: unix.ENOSPC}
	}
}

func file(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text + "\n")} }

func TestChecks(t *testing.T) {
	card := fstest.MapFS{
		"sys/bus/pci/devices/0000:17:00.0/vendor": file("0x10de"), "sys/bus/pci/devices/0000:17:00.0/class": file("0x030200"),
		"sys/bus/pci/devices/0000:17:00.1/vendor": file("0x10de"), "sys/bus/pci/devices/0000:17:00.1/class": file("0x040300"), // its audio
		"sys/bus/pci/devices/0000:18:00.0/vendor": file("0x8086"), "sys/bus/pci/devices/0000:18:00.0/class": file("0x030000"),
	}
	withDriver := fstest.MapFS{"dev/nvidia3": {}}
	for name, f := range card {
		withDriver[name] = f
	}
	gpus := []string{"SLURM_GPUS_ON_NODE=2"}
	for name, tt := range map[string]struct {
		change func(*Machine)
		r      Request
		env    []string
		fatal  string // part of the problem's text; "": no fatal problem
		warns  string
	}{
		"sound": {},
		"full shm": {
			change: func(m *Machine) {
				m.SpaceOf = func(string) (vfs.Space, error) { return vfs.Space{Free: 4096, Total: 1 << 30}, nil }
			},
			warns: "/dev/shm is full (4 KiB of 1 GiB are free)",
		},
		"full shm, and containers have their own": {
			change: func(m *Machine) { m.SpaceOf = func(string) (vfs.Space, error) { return vfs.Space{}, nil } }, r: Request{OwnShm: true},
		},
		"no shm": {
			change: func(m *Machine) {
				m.SpaceOf = func(p string) (vfs.Space, error) {
					return vfs.Space{}, &fs.PathError{Op: "statfs", Path: p, Err: unix.ENOENT}
				}
			},
			warns: "/dev/shm does not exist",
		},
		"shm that nobody may ask for": {
			change: func(m *Machine) { m.SpaceOf = func(string) (vfs.Space, error) { return vfs.Space{}, unix.EACCES } },
		},
		"no temporary files": {
			change: func(m *Machine) { m.TakeFile = fullFolders() }, env: []string{"TMPDIR=/scratch/7/"},
			warns: "cannot create a file in any folder for temporary files: /scratch/7: no space left on device, /tmp: no space left " +
				"on device, /var/tmp: no " +
				"space left on device;",
		},
		"a TMPDIR that is not there": {
			change: func(m *Machine) { m.TakeFile = fullFolders("/tmp") }, env: []string{"TMPDIR=/scratch/7"},
			warns: "cannot create a file in /scratch/7 " +
				"(no space left on device)",
		},
		"a full /tmp, and a TMPDIR": {change: func(m *Machine) { m.TakeFile = fullFolders("/scratch") }, env: []string{"TMPDIR=/scratch"}},
		"a full /tmp": {change: func(m *Machine) { m.TakeFile = fullFolders("/var/tmp") },
			warns: "programs that do not go on to /var/tmp fail"},
		"a relative TMPDIR": {env: []string{"TMPDIR=tmp"}},
		"no driver": {change: func(m *Machine) { m.Root = card }, env: gpus,
			fatal: "gave this node's 2 GPUs to the job, and the machine has 1 card, but /dev/nvidia0 does not exist:"},
		"no driver, and no GPUs": {change: func(m *Machine) { m.Root = card }},
		"a driver":               {change: func(m *Machine) { m.Root = withDriver }, env: gpus},
		"GPUs of another make":   {env: gpus},
		"rubbish for GPUs":       {change: func(m *Machine) { m.Root = card }, env: []string{"SLURM_GPUS_ON_NODE=-1"}},
		"few open files": {
			change: func(m *Machine) { m.Limits.OpenFiles = 127 }, r: Request{Workers: 8},
			fatal: "the limit of open files is 127, and with 8 " +
				"workers at least 128 are needed",
		},
		"enough open files": {change: func(m *Machine) { m.Limits.OpenFiles = 128 }, r: Request{Workers: 8}},
		"few processes": {change: func(m *Machine) { m.Limits.Processes = 17 }, r: Request{Workers: 1},
			fatal: "the limit of processes is 17, and with 1 worker at least 18 are needed"},
		"few, of root": {change: func(m *Machine) { m.Limits = Limits{OpenFiles: 1024, Privileged: true} },
			r: Request{Workers: 1, RDMA: true}},
		"little to lock": {change: func(m *Machine) { m.Limits.LockedMemory = 64 << 10 }, r: Request{RDMA: true},
			fatal: "the limit of locked memory is 64 KiB"},
		"little to lock, and no RDMA": {
			change: func(m *Machine) { m.Limits.LockedMemory = 64 << 10 },
		},
		"all may be locked": {change: func(m *Machine) { m.Limits.LockedMemory = unix.RLIM_INFINITY }, r: Request{RDMA: true}},
	} {
		t.Run(name, func(t *testing.T) {
			m := sound()
			if tt.change != nil {
				tt.change(m)
			}
			tt.r.Lookup = func(name string) (string, bool) {
				for _, entry := range tt.env {
					if value, ok := strings.CutPrefix(entry, name+"="); ok {
						return value, true
					}
				}
				return "", false
			}
			found := m.Check(tt.r)
			want := tt.fatal + tt.warns
			switch {
			case want == "" && len(found) > 0:
				t.Errorf("a false alarm: %+v", found)
			case want != "" && (len(found) != 1 || !strings.Contains(found[0].Text, want) || found[0].Fatal != (tt.fatal != "")):
				t.Errorf("%+v, want %q", found, want)
			}
		})
	}
}

func TestWorstFirst(t *testing.T) {
	m := sound()
	m.SpaceOf = func(string) (vfs.Space, error) { return vfs.Space{}, fs.ErrNotExist }
	m.Limits.OpenFiles = 3
	found := m.Check(Request{Workers: 1, Lookup: func(string) (string, bool) { return "", false }})
	if len(found) != 2 || found[0].Check != "limits" || found[1].Check != "shm" {
		t.Errorf("%+v", found)
	}
}

// This machine runs tests, so it can run workers. Checking that takes hardly any time.
func TestThisMachine(t *testing.T) {
	least := time.Hour
	for range 5 { // other processes may slow a single check down
		begun := time.Now()
		for _, p := range This().Check(Request{Workers: 1, Lookup: os.LookupEnv}) {
			if p.Fatal {
				t.Errorf("%s: %s", p.Check, p.Text)
			}
		}
		least = min(least, time.Since(begun))
	}
	if t.Logf("the checks take %v", least); least > 20*time.Millisecond {
		t.Errorf("the checks take %v", least)
	}
}

func TestTakeFile(t *testing.T) {
	folder := t.TempDir()
	if err := takeFile(folder); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if err := takeFile(filepath.Join(folder, "not-there")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
}
