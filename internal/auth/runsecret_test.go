package auth

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestKeyPath(t *testing.T) {
	tests := []struct {
		name, file, home, want string
	}{
		{"home", "", "/home/u", "/home/u/.config/ddpbatch/key"},
		{"file", "/shared/key", "/home/u", "/shared/key"},
		{"file_without_home", "/shared/key", "", "/shared/key"},
		{"nothing", "", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := KeyPath(func(name string) (string, bool) {
				value := map[string]string{"DDPBATCH_SECRET_FILE": tt.file, "HOME": tt.home}[name]
				return value, value != ""
			})
			if got != tt.want || (err == nil) != (tt.want != "") {
				t.Errorf("got %q, %v, want %q", got, err, tt.want)
			}
			if err != nil && !strings.Contains(err.Error(), "DDPBATCH_SECRET_FILE") {
				t.Errorf("%q does not say what to set", err)
			}
		})
	}
}

func TestRunSecret(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	secretOf := func(run string) Secret {
		t.Helper()
		s, err := RunSecret(path, run)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := secretOf("a") // makes the file
	if again := secretOf("a"); again != first {
		t.Error("a run has two secrets")
	}
	if secretOf("b") == first {
		t.Error("two runs have one secret")
	}
	if key, err := KeyFile(path); err != nil || key == first {
		t.Errorf("the secret of a run is the key itself, or there is none: %v", err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := RunSecret(path, "a"); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a key that others may read: got %v", err)
	}
}
