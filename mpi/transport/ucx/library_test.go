package ucx

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"ddpbatch/internal/testkit/ucxhost"
)

// libraryVariable makes a test a process that loads the libucp of a folder and prints the error.
const libraryVariable = "DDPBATCH_TEST_UCX_LIBRARY"

func TestUnfitLibrariesAreRefused(t *testing.T) {
	if os.Getenv(libraryVariable) != "" {
		_, _, err := Library()
		fmt.Println(err)
		return
	}
	_, _, err := Library()
	ucxhost.Need(t, err)
	compiler, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("there is no C compiler to make libraries with: ", err)
	}
	without := func(name string) string {
		code := "void ucp_get_version(unsigned *a, unsigned *b, unsigned *c) { *a = 1; *b = 12; *c = 1; }\n"
		for symbol := range new(functions).bySymbol() {
			if symbol != "ucp_get_version" && symbol != name {
				code += "int " + symbol + "(void) { return 0; }\n"
			}
		}
		return code
	}
	for name, c := range map[string]struct{ code, says string }{
		"an old one": {without(""), "is UCX 1.12.1: install 1.13.0 or newer"},
		"one without a function": {without("ucp_ep_close_nbx"),
			"libucp.so.0 has no ucp_ep_close_nbx: it is older than UCX 1.13.0, or is not UCX"},
		"no library": {"", "load libucp.so.0: "},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, soname)
			if c.code == "" {
				if err := os.WriteFile(file, []byte("This is a text.\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			} else {
				build := exec.Command(compiler, "-shared", "-o", file, "-xc", "-")
				build.Stdin = strings.NewReader(c.code)
				if out, err := build.CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
			cmd := exec.Command("/proc/self/exe", "-test.run=^TestUnfitLibrariesAreRefused$")
			cmd.Env = append(os.Environ(), libraryVariable+"=1", "LD_LIBRARY_PATH="+dir)
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), c.says) {
				t.Errorf("it says %s%v, want %q", out, err, c.says)
			}
		})
	}
}
