package defaults

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"ddpbatch/internal/vfs"
)

// written returns places below a folder of the test, whose files hold the given texts. For an empty text there is no file.
func written(t *testing.T, site, user string) Places {
	t.Helper()
	dir := t.TempDir()
	p := Places{Site: filepath.Join(dir, "site.toml"), User: filepath.Join(dir, "ddpbatch")}
	if err := os.Mkdir(p.User, 0o755); err != nil {
		t.Fatal(err)
	}
	for i, text := range []string{site, user} {
		if text == "" {
			continue
		}
		if err := os.WriteFile(p.Files()[i].Path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func TestUserFolderFollowsXDG(t *testing.T) {
	for _, test := range []struct {
		name    string
		environ map[string]string
		want    string
	}{
		{"neither", nil, ""},
		{"HOME", map[string]string{"HOME": "/home/ann"}, "/home/ann/.config/ddpbatch"},
		{"both", map[string]string{"HOME": "/home/ann", "XDG_CONFIG_HOME": "/cfg"}, "/cfg/ddpbatch"},
		{"an empty one", map[string]string{"HOME": "/home/ann", "XDG_CONFIG_HOME": ""}, "/home/ann/.config/ddpbatch"},
		{"a relative one", map[string]string{"HOME": "/home/ann", "XDG_CONFIG_HOME": "cfg"}, "/home/ann/.config/ddpbatch"},
		{"a relative HOME", map[string]string{"HOME": "ann"}, ""},
	} {
		got := UserFolder(func(name string) (string, bool) { v, ok := test.environ[name]; return v, ok })
		if got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

// TestReadTakesWhatIsThere checks which files are read, and in what order.
func TestReadTakesWhatIsThere(t *testing.T) {
	for _, test := range []struct{ site, user, want string }{
		{"", "", ""},
		{"slurm.qos = \"a\"", "", "site.toml true"},
		{"", "slurm.qos = \"b\"", "config.toml false"},
		{"slurm.qos = \"a\"", "slurm.qos = \"b\"", "site.toml true config.toml false"},
	} {
		d, err := written(t, test.site, test.user).Read()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range d.Files() {
			got = append(got, fmt.Sprint(filepath.Base(f.Name), " ", f.Site))
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%q and %q: got %q, want %q", test.site, test.user, got, test.want)
		}
	}
	if d, err := (Places{}).Read(); d != nil || err != nil {
		t.Errorf("nowhere: %v, %v", d, err)
	}
	if d, err := (Places{User: "/dev/null"}).Read(); d != nil || err != nil {
		t.Errorf("a folder that is none: %v, %v", d, err)
	}
}

func TestDefaultsOthersCanWriteAreRefused(t *testing.T) {
	for at := range 2 {
		p := written(t, "slurm.qos = \"a\"", "slurm.qos = \"b\"")
		file := p.Files()[at].Path
		for _, mode := range []fs.FileMode{0o620, 0o602, 0o666} {
			if err := os.Chmod(file, mode); err != nil {
				t.Fatal(err)
			}
			if _, err := p.Read(); !errors.Is(err, vfs.ErrExposed) || !strings.Contains(err.Error(), "chmod go-w '"+file+"'") {
				t.Errorf("%s with mode %o: %v", file, mode, err)
			}
		}
		if err := os.Chmod(file, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Read(); err != nil {
			t.Errorf("what others may read: %v", err)
		}
	}
	// a folder of the files, or above them, that others can write to is named
	p := written(t, "slurm.qos = \"a\"", "slurm.qos = \"b\"")
	above := filepath.Dir(p.Site)
	for _, folder := range []string{p.User, above} {
		if got := p.Exposed(); got != "" {
			t.Errorf("exposed: %q", got)
		}
		if err := os.Chmod(folder, 0o777); err != nil {
			t.Fatal(err)
		}
		if got := p.Exposed(); got != folder {
			t.Errorf("exposed: %q, want %s", got, folder)
		}
		if _, err := p.Read(); errors.Is(err, vfs.ErrExposed) != (folder == above) {
			t.Errorf("others can change %s: %v", folder, err)
		}
		if err := os.Chmod(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDefaultsOfAnotherUserAreRefused needs root, because only root can give a file to another user.
func TestDefaultsOfAnotherUserAreRefused(t *testing.T) {
	for at := range 2 {
		p := written(t, "slurm.qos = \"a\"", "slurm.qos = \"b\"")
		file := p.Files()[at].Path
		if err := os.Chown(file, 12345, -1); err != nil {
			t.Skipf("needs to give a file to another user: %v", err)
		}
		if _, err := p.Read(); !errors.Is(err, vfs.ErrExposed) || !strings.Contains(err.Error(), "belongs to the user with the id 12345") {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func TestReadWaitsForNoPipe(t *testing.T) {
	p := written(t, "", "")
	if err := syscall.Mkfifo(p.Files()[1].Path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Read(); !errors.Is(err, vfs.ErrNotRegular) {
		t.Errorf("a pipe: %v", err)
	}
}

func TestLongFilesAreRefused(t *testing.T) {
	p := written(t, "", strings.Repeat("#\n", maxText/2+1))
	if _, err := p.Read(); err == nil || !strings.Contains(err.Error(), "longer than 1048576 bytes") {
		t.Errorf("got %v", err)
	}
}

func TestSummaryIsTheFirstComment(t *testing.T) {
	for body, want := range map[string]string{
		"": "", "name = 1": "", "#  a job \nname = 1": "a job", "\n# later": "", "# " + strings.Repeat("x", 200): strings.Repeat("x", 100) +
			"...",
	} {
		if got := summary(body); got != want {
			t.Errorf("%.20q: got %q, want %q", body, got, want)
		}
	}
}
