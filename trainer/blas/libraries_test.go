package blas

import (
	"errors"
	"os/exec"
	"path/filepath"
	"testing"
)

// libraries are those to test: Go, what Auto takes, and the other builds that Debian installs beside each other.
func libraries(t testing.TB) map[string]Library {
	t.Helper()
	all := map[string]Library{InGo: new(Go)}
	for _, spec := range append(installed(t), Auto) {
		lib, info, err := Open(Config{Library: spec, Threads: 1})
		if err != nil {
			t.Logf("without %s: %v", spec, err)
			continue
		}
		t.Logf("%s: %v", spec, info)
		all[spec] = lib
	}
	return all
}

// installed are the files of Debian's packages libopenblas0-*, libblis4-* and libblas3.
func installed(t testing.TB) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"openblas-*/libopenblas.so.0", "blis-*/libblis.so.4", "blas/libblas.so.3"} {
		files, err := filepath.Glob(filepath.Join("/usr/lib/*-linux-gnu*", pattern))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, files...)
	}
	return all
}

// foreignLibrary opens what Auto takes, and skips the test where that is Go.
func foreignLibrary(t testing.TB, threads int) (Library, Info) {
	t.Helper()
	lib, info, err := Open(Config{Library: Auto, Threads: threads})
	if err != nil {
		t.Fatal(err)
	}
	if info.Name == InGo {
		t.Skipf("no BLAS library here: %s", info.Advice)
	}
	return lib, info
}

// fake compiles testdata/fake.c to a file of that name in a new folder, and skips the test where there is no compiler or nothing
// can be loaded.
func fake(t *testing.T, name string, defines ...string) string {
	t.Helper()
	if _, _, err := load("libc.so.6", 1, anyKind); err != nil && errors.Is(err, errCannotLoad) {
		t.Skip(err)
	}
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc to build a library with")
	}
	file := filepath.Join(t.TempDir(), name)
	args := append([]string{"-shared", "-fPIC", "-O1", "-o", file, "testdata/fake.c"}, defines...)
	if out, err := exec.CommandContext(t.Context(), gcc, args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return file
}
