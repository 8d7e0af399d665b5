package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// project makes a module of two packages: good, and bad, whose only test file is source. The module is the working directory until the test
// ends.
func project(t *testing.T, source string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":            "module example.test/m\n\ngo 1.24\n",
		"docs/security.md":  "| they try | and cannot | `TestCallers` |\n",
		"good/good_test.go": "package good\n\nimport \"testing\"\n\nfunc TestGood(t *testing.T) {}\n",
		"bad/bad_test.go":   source,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
}

// once returns the source of a test file: each of the named tests fails when it runs for the first time, and prints "first time".
func once(names ...string) string {
	s := "package bad\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\n" +
		"func fails(t *testing.T) {\n\tf, err := os.OpenFile(\"ran-\"+t.Name()[4:7], os.O_CREATE|os.O_EXCL, 0o600)\n" +
		"\tif err == nil {\n\t\tf.Close()\n\t\tt.Fatal(\"first time\")\n\t}\n}\n"
	for _, n := range names {
		s += "\nfunc " + n + "(t *testing.T) { fails(t) }\n"
	}
	return s
}

func TestAFailedTestIsRunOnceMore(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it builds tests")
	}
	always := "package bad\n\nimport \"testing\"\n\nfunc TestAlways(t *testing.T) { t.Error(\"as ever\") }\n"
	for _, c := range []struct {
		name   string
		source string
		before string // names that failed earlier in the same run
		passes bool
		says   []string
	}{
		{"passes then", once("TestAaa"), "", true,
			[]string{"FLAKY: example.test/m/bad TestAaa; its first output:", "first time", "ok  \texample.test/m/good"}},
		{"fails again", always, "", false, []string{"as ever", "failed twice: example.test/m/bad TestAlways"}},
		{"three", once("TestAaa", "TestBbb", "TestCcc"), "", true, []string{"FLAKY: example.test/m/bad TestCcc"}},
		{"four", once("TestAaa", "TestBbb", "TestCcc", "TestDdd"), "", false, []string{"no second run: 4 tests failed"}},
		{"one, after three", once("TestAaa"), "p A\np B\np C\n", false, []string{"3 failed before"}},
		{"a port", once("TestAaaPortIsHeld"), "", false, []string{"no second run: "}},
		{"of docs/security.md", once("TestCallers"), "", false, []string{"TestCallers is about what never fails by chance"}},
		{"a race", strings.Replace(once("TestAaa"), "first time", "WARNING: DATA RACE", 1), "", false, []string{`says "DATA RACE"`}},
		{"a panic", "package bad\n\nimport \"testing\"\n\nfunc TestP(t *testing.T) { panic(\"no\") }\n", "", false,
			[]string{"no second run: "}},
		{"no end", "package bad\n\nimport (\n\t\"fmt\"\n\t\"os\"\n\t\"testing\"\n)\n\nfunc TestP(t *testing.T) { fmt.Println(\"last " +
			"words\"); os.Exit(3) }\n", "", false, []string{"last words", "no second run: "}},
		{"no build", "package bad\n\nfunc f() { return 1 }\n", "", false, []string{"too many return values", "no second run: "}},
		{"TestMain", "package bad\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nfunc TestMain(m *testing.M) { m.Run(); os.Exit(1) }\n", "",
			false, []string{"failed, and none of its tests"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			project(t, c.source)
			flaky := filepath.Join(t.TempDir(), "flaky")
			if err := os.WriteFile(flaky, []byte(c.before), 0o600); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			passed, err := run(t.Context(), []string{"-vet=off", "./..."}, files{flaky: flaky}, &out)
			if err != nil || passed != c.passes {
				t.Errorf("passed %v (%v), want %v; printed:\n%s", passed, err, c.passes, &out)
			}
			for _, s := range c.says {
				if !strings.Contains(out.String(), s) {
					t.Errorf("%q was not printed:\n%s", s, &out)
				}
			}
		})
	}
}

func TestOnlyTheSubtestThatFailedIsRunAgain(t *testing.T) {
	project(t, strings.Replace(once(), "func fails", `func TestAll(t *testing.T) {
	t.Run("good", func(t *testing.T) { t.Log("ran good") })
	t.Run("in two words (+)", fails)
}

func fails`, 1))
	flaky := filepath.Join(t.TempDir(), "flaky")
	var out bytes.Buffer
	if passed, err := run(t.Context(), []string{"./..."}, files{flaky: flaky}, &out); !passed || err != nil {
		t.Fatalf("passed %v (%v); printed:\n%s", passed, err, &out)
	}
	names, err := readLines(flaky)
	if err != nil || len(names) != 1 || names[0] != "example.test/m/bad TestAll/in_two_words_(+)" {
		t.Errorf("%q (%v) are noted as flaky", names, err)
	}
}

func TestWithoutAFileNothingIsRunAgain(t *testing.T) {
	project(t, once("TestAaa"))
	var out bytes.Buffer
	passed, err := run(t.Context(), []string{"./..."}, files{}, &out)
	if passed || err != nil || strings.Contains(out.String(), "FLAKY") {
		t.Errorf("passed %v (%v); printed:\n%s", passed, err, &out)
	}
}

// A failed test runs once more when no other call runs tests.
func TestSecondRunIsAlone(t *testing.T) {
	project(t, once("TestAaa"))
	flaky := filepath.Join(t.TempDir(), "flaky")
	other, err := join(t.Context(), flaky)
	if err != nil {
		t.Fatal(err)
	}
	pipe, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		passed, err := run(t.Context(), []string{"-vet=off", "./..."}, files{flaky: flaky}, out)
		if err == nil && !passed {
			err = errors.New("it failed")
		}
		out.Close()
		done <- err
	}()
	waited := false
	var said strings.Builder
	lines := bufio.NewScanner(pipe)
	for lines.Scan() {
		fmt.Fprintln(&said, lines.Text())
		switch {
		case strings.Contains(lines.Text(), "when other tests have ended"):
			waited = true
			other.Close()
		case strings.Contains(lines.Text(), "is run once more") && !waited:
			t.Error("it did not wait for the other call")
		}
	}
	if err := <-done; err != nil || !waited || !strings.Contains(said.String(), "FLAKY: ") {
		t.Errorf("%v, waited: %v; printed:\n%s", err, waited, &said)
	}
}
