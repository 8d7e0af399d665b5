package rundir

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// stranger is the id of a user without an account.
const stranger = 4242

// give gives a file to another user, which only root can do.
func give(t testing.TB, path string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root gives files to another user")
	}
	must(t, os.Lchown(path, stranger, stranger))
}

// TestCheckOwnRefusesWhatOthersCanChange removes, one by one, each thing that makes a run only its owner's.
func TestCheckOwnRefusesWhatOthersCanChange(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		change func(t *testing.T, d *Dir)
		owner  string // the error of CheckOwner; empty: no error
		own    string // the error of CheckOwn
	}{
		{"nothing", func(*testing.T, *Dir) {}, "", ""},
		{"the directory is another's", func(t *testing.T, d *Dir) { give(t, d.Path()) }, "belongs to user 4242", "belongs to user 4242"},
		{"the spec is another's", func(t *testing.T, d *Dir) { give(t, d.SpecPath()) }, "spec.json belongs to user 4242",
			"spec.json belongs to user 4242"},
		{"the program is another's", func(t *testing.T, d *Dir) { give(t, d.Binary()) }, "bin/ddpbatch belongs to user 4242",
			"bin/ddpbatch belongs to user 4242"},
		{"the group writes to the directory", func(t *testing.T, d *Dir) { must(t, os.Chmod(d.Path(), 0o770)) },
			"chmod go-w", "chmod go-w"},
		{"others write to the program", func(t *testing.T, d *Dir) { must(t, os.Chmod(d.Binary(), 0o702)) }, "chmod go-w", "chmod go-w"},
		{"the program is a link", func(t *testing.T, d *Dir) {
			must(t, os.Remove(d.Binary()))
			must(t, os.Symlink("/bin/true", d.Binary()))
		}, "is a link", "is a link"},
		{"the code is another's", func(t *testing.T, d *Dir) {
			must(t, os.Mkdir(filepath.Join(d.Path(), CodeName), 0o700))
			give(t, filepath.Join(d.Path(), CodeName))
		}, "code belongs to user 4242", "code belongs to user 4242"},
		{"others write to the code", func(t *testing.T, d *Dir) {
			must(t, os.Mkdir(filepath.Join(d.Path(), CodeName), 0o700))
			must(t, os.Chmod(filepath.Join(d.Path(), CodeName), 0o777))
		}, "chmod go-w", "chmod go-w"},
		{"the code is a link", func(t *testing.T, d *Dir) {
			must(t, os.Symlink("/usr", filepath.Join(d.Path(), CodeName)))
		}, "is a link", "is a link"},
		{"the program is gone", func(t *testing.T, d *Dir) { must(t, os.Remove(d.Binary())) }, "no such file", "no such file"},
		{"runs is another's", func(t *testing.T, d *Dir) { give(t, filepath.Dir(d.Path())) }, "",
			"runs belongs to user 4242, who can replace"},
		{"runs is another's, and sticky", func(t *testing.T, d *Dir) {
			give(t, filepath.Dir(d.Path()))
			must(t, os.Chmod(filepath.Dir(d.Path()), 0o777|fs.ModeSticky))
		}, "", "runs belongs to user 4242, who can replace"},
		{"the group writes to runs", func(t *testing.T, d *Dir) { must(t, os.Chmod(filepath.Dir(d.Path()), 0o775)) }, "", "chmod go-w"},
		{"others write to runs", func(t *testing.T, d *Dir) { must(t, os.Chmod(filepath.Dir(d.Path()), 0o757)) }, "", "chmod go-w"},
		{"others write to runs, which is sticky",
			func(t *testing.T, d *Dir) { must(t, os.Chmod(filepath.Dir(d.Path()), 0o777|fs.ModeSticky)) }, "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := create1(t, filepath.Join(t.TempDir(), "runs"), "a")
			element, err := d.Task(3)
			must(t, err)
			test.change(t, d)
			for _, d := range []*Dir{d, element} {
				wantError(t, "CheckOwner", d.CheckOwner(), test.owner)
				wantError(t, "CheckOwn", d.CheckOwn(), test.own)
			}
		})
	}
}

func wantError(t *testing.T, what string, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("%s: %v", what, err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("%s: %v, want an error that says %q", what, err, want)
	case err != nil && !errors.Is(err, ErrExposed) && !errors.Is(err, fs.ErrNotExist):
		t.Errorf("%s: %v is not ErrExposed", what, err)
	}
}

// TestRootMayCancel: root may cancel the run of another user, and do nothing else with it.
func TestRootMayCancel(t *testing.T) {
	t.Parallel()
	d := create1(t, filepath.Join(t.TempDir(), "runs"), "a")
	give(t, d.Path())
	if err := d.CheckCancel(); err != nil {
		t.Error(err)
	}
	if err := d.SetJobID("12"); !errors.Is(err, ErrExposed) {
		t.Errorf("SetJobID: %v, want ErrExposed", err)
	}
	if _, err := os.Lstat(filepath.Join(d.Path(), jobIDName)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("root has left a job id of its own: %v", err)
	}
	if d.IsOwn() {
		t.Error("root takes the run for its own")
	}
	if _, err := OpenOwn(d.Path()); !errors.Is(err, ErrExposed) {
		t.Errorf("OpenOwn: %v, want ErrExposed", err)
	}
}

// TestRootWritesToNothingElse: when root records a cancel in the ledger of another user's run, root adds to no other file.
func TestRootWritesToNothingElse(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		plant func(t *testing.T, ledger, precious string)
		added bool
	}{
		"a ledger": {func(t *testing.T, ledger, _ string) {
			must(t, os.WriteFile(ledger, nil, 0o600))
			give(t, ledger)
		}, true},
		"no ledger": {func(*testing.T, string, string) {}, false},
		"a link": {func(t *testing.T, ledger, precious string) {
			must(t, os.Symlink(precious, ledger))
			give(t, ledger)
		}, false},
		"a hard link": {func(t *testing.T, ledger, precious string) { must(t, os.Link(precious, ledger)) }, false},
		"a pipe": {func(t *testing.T, ledger, _ string) {
			must(t, syscall.Mkfifo(ledger, 0o600))
			give(t, ledger)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := create1(t, filepath.Join(t.TempDir(), "runs"), "a")
			precious := filepath.Join(filepath.Dir(d.Path()), "precious")
			must(t, os.WriteFile(precious, []byte("root's\n"), 0o600))
			ledger := filepath.Join(d.Path(), ledgerName)
			test.plant(t, ledger, precious)
			give(t, d.Path())
			err := d.Append(Event{Event: EventCancel, Job: "12"})
			if (err == nil) != test.added {
				t.Errorf("adding to the ledger: %v", err)
			}
			if text, err := os.ReadFile(precious); err != nil || string(text) != "root's\n" {
				t.Errorf("another file holds %q now (%v)", text, err)
			}
			if _, err := os.Lstat(ledger); name == "no ledger" && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("root has made a ledger (%v)", err)
			}
		})
	}
}

// TestElementOfAnotherIsRefused: the directory of an array's element is checked, too.
func TestElementOfAnotherIsRefused(t *testing.T) {
	t.Parallel()
	d := create1(t, filepath.Join(t.TempDir(), "runs"), "a")
	element, err := d.Task(3)
	must(t, err)
	give(t, element.Path())
	wantError(t, "the element", element.CheckOwn(), "tasks/3 belongs to user 4242")
	wantError(t, "the array", d.CheckOwn(), "")
}

// openACL returns an ACL that lets every user do everything, as the kernel reads it: version 2, then tag, permissions and id of each entry
// (acl(5)).
func openACL() []byte {
	acl := binary.LittleEndian.AppendUint32(nil, 2)
	for _, entry := range []struct {
		tag uint16
		id  uint32
	}{{0x01, ^uint32(0)}, {0x02, stranger}, {0x04, ^uint32(0)}, {0x10, ^uint32(0)}, {0x20, ^uint32(0)}} {
		// owner, user, group, mask, others
		acl = binary.LittleEndian.AppendUint16(acl, entry.tag)
		acl = binary.LittleEndian.AppendUint16(acl, 7)
		acl = binary.LittleEndian.AppendUint32(acl, entry.id)
	}
	return acl
}

// TestCreateMakesRunsOurs: the permissions that others have in the folder above do not pass on to runs/.
func TestCreateMakesRunsOurs(t *testing.T) {
	old := syscall.Umask(0) // for the whole process, so no parallel test may run meanwhile
	defer syscall.Umask(old)
	for name, above := range map[string]func(t *testing.T, dir string){
		"nothing": func(*testing.T, string) {},
		"setgid":  func(t *testing.T, dir string) { must(t, os.Chmod(dir, 0o775|fs.ModeSetgid)) },
		"default ACL": func(t *testing.T, dir string) {
			if err := unix.Setxattr(dir, "system.posix_acl_default", openACL(), 0); err != nil {
				t.Skipf("the file system does not support ACLs: %v", err)
			}
		},
	} {
		for _, umask := range []int{0, 0o002, 0o077} {
			t.Run(name+"/umask "+strconv.FormatInt(int64(umask), 8), func(t *testing.T) {
				dir := t.TempDir()
				above(t, dir)
				syscall.Umask(umask)
				d := create1(t, filepath.Join(dir, "project", "runs"), "a")
				must(t, d.SetJobID("12"))
				_, err := d.ClaimAttempt()
				must(t, err)
				syscall.Umask(0)
				for _, path := range []string{filepath.Join(dir, "project"), filepath.Join(dir, "project", "runs")} {
					info, err := os.Stat(path)
					must(t, err)
					if info.Mode() != fs.ModeDir|0o755 {
						t.Errorf("%s has the mode %v, want 0755", path, info.Mode())
					}
				}
				must(t, filepath.WalkDir(d.Path(), func(path string, entry fs.DirEntry, err error) error {
					if err != nil {
						return err
					}
					info, err := entry.Info()
					if err == nil && info.Mode().Perm()&0o077 != 0 {
						t.Errorf("%s has the mode %v: nobody else has any business with it", path, info.Mode())
					}
					return err
				}))
			})
		}
	}
}

// TestCreateRefusesRunsOfAll: Create makes no run directory where others can replace it, and leaves nothing behind.
func TestCreateRefusesRunsOfAll(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(t *testing.T, runs string)
		says   string
	}{
		"group":     {func(t *testing.T, runs string) { must(t, os.Chmod(runs, 0o775)) }, "chmod go-w '"},
		"others":    {func(t *testing.T, runs string) { must(t, os.Chmod(runs, 0o757)) }, "chmod go-w '"},
		"setgid":    {func(t *testing.T, runs string) { must(t, os.Chmod(runs, 0o775|fs.ModeSetgid)) }, "chmod go-w '"},
		"sticky":    {func(t *testing.T, runs string) { must(t, os.Chmod(runs, 0o777|fs.ModeSticky)) }, ""},
		"another's": {func(t *testing.T, runs string) { give(t, runs) }, "set run_dir"},
		"another's, sticky": {func(t *testing.T, runs string) { give(t, runs); must(t, os.Chmod(runs, 0o777|fs.ModeSticky)) },
			"set run_dir"},
		"a link to what the group writes to": {func(t *testing.T, runs string) {
			must(t, os.Rename(runs, runs+"2"))
			must(t, os.Chmod(runs+"2", 0o775))
			must(t, os.Symlink(runs+"2", runs))
		}, "chmod go-w '"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runs := filepath.Join(t.TempDir(), "runs")
			must(t, os.Mkdir(runs, 0o755))
			test.change(t, runs)
			_, err := Create(config(t, runs, "a"))
			wantError(t, "Create", err, test.says)
			if left := listing(t, runs); test.says != "" && len(left) > 0 {
				t.Errorf("%q is left", left)
			}
		})
	}
}

// TestExposedAboveNamesTheNearestFolder: the nearest folder that another user can change is named, both on the path as written and on the
// path without links.
func TestExposedAboveNamesTheNearestFolder(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	must(t, os.Chmod(dir, 0o755)) // regardless of the umask
	for _, name := range []string{"open", "sticky", "real"} {
		must(t, os.MkdirAll(filepath.Join(dir, name, "project"), 0o755))
	}
	must(t, os.Chmod(filepath.Join(dir, "open"), 0o775))
	must(t, os.Chmod(filepath.Join(dir, "sticky"), 0o777|fs.ModeSticky))
	must(t, os.Chmod(filepath.Join(dir, "real"), 0o777))
	must(t, os.Symlink(filepath.Join(dir, "real", "project"), filepath.Join(dir, "link")))
	for parent, want := range map[string]string{"open/project/runs": "open", "sticky/project/runs": "", "link/runs": "real"} {
		d := create1(t, filepath.Join(dir, parent), "a")
		if want != "" {
			want = filepath.Join(dir, want)
		}
		if got := d.ExposedAbove(); got != want {
			t.Errorf("%s: %q, want %q", parent, got, want)
		}
	}
}
