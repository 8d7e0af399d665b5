package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ddpbatch/internal/usage"
)

func TestEndSaysTheErrorAndItsCode(t *testing.T) {
	for _, tt := range []struct {
		err  error
		code int
		said string
	}{
		{nil, 0, ""},
		{flag.ErrHelp, 0, ""},
		{usage.Errorf("-ranks: %q", "x"), 2, "bench-x: -ranks: \"x\"; try -h\n"},
		{fmt.Errorf("a launch: %w", context.Canceled), 130, "bench-x: interrupted; its processes and temporary files are gone\n"},
		{errors.New("no disk"), 1, "bench-x: no disk\n"},
	} {
		var said strings.Builder
		if code := end("bench-x", tt.err, &said); code != tt.code || said.String() != tt.said {
			t.Errorf("%v: code %d and %q, want %d and %q", tt.err, code, said.String(), tt.code, tt.said)
		}
	}
}

// parse reads the command line of a program with one additional option, -size.
func parse(args string, stderr io.Writer) (c Common, size string, err error) {
	f := NewFlags(&c, "A comparison.\n\n", " of less", map[string]string{"size": "small"})
	f.TakeProgram()
	f.StringVar(&size, "size", "large", "of all")
	err = f.Parse(strings.Fields(args), stderr)
	return c, size, err
}

// Seven launches are enough for an interval of 95 %. Options given beside --quick take precedence.
func TestParseKeepsWhatIsNamedBesideQuick(t *testing.T) {
	for args, want := range map[string]struct {
		launches int
		size     string
	}{
		"": {7, "large"}, "--quick": {3, "small"}, "--quick --launches=7": {7, "small"}, "-size large -quick": {3, "large"},
		"--launches 1000": {1000, "large"},
	} {
		f, size, err := parse(args, io.Discard)
		if err != nil || f.Launches != want.launches || size != want.size {
			t.Errorf("%q: %d launches, %s, %v; want %+v", args, f.Launches, size, err, want)
		}
	}
}

func TestParsePrintsItsHelp(t *testing.T) {
	var text strings.Builder
	if _, _, err := parse("-h", &text); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-h: %v", err)
	}
	for _, want := range []string{"A comparison.\n", "-size", "a first look: 3 launches of less; other given options take precedence"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("-h does not say %q:\n%s", want, text.String())
		}
	}
}

func TestParseRefusesBadOptions(t *testing.T) {
	for args, want := range map[string]string{
		"--launches 0":                    "-launches is 0; it must be 1 to 1000",
		"--quick --launches 1001":         "-launches is 1001; it must be 1 to 1000",
		"--launches many":                 "invalid value",
		"launch":                          `"launch" is not expected`,
		"--nosuch":                        "flag provided but not defined",
		"--ddpbatch /nonexistent":         `invalid value "/nonexistent" for flag -ddpbatch: `,
		"--ddpbatch " + os.TempDir():      "for flag -ddpbatch: ",
		"--json samples.json --ddpbatch ": "flag needs an argument: -ddpbatch",
	} {
		_, _, err := parse(args, io.Discard)
		var misused *usage.Error
		if !errors.As(err, &misused) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

// A launch in another folder still finds a program that was given by a relative path.
func TestProgramIsAbsolute(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.WriteFile("ddpbatch", nil, 0o700); err != nil {
		t.Fatal(err)
	}
	if f, _, err := parse("--ddpbatch ddpbatch", io.Discard); err != nil || f.Program != filepath.Join(dir, "ddpbatch") {
		t.Errorf("%q, %v", f.Program, err)
	}
}

func TestListsAreReadInOrder(t *testing.T) {
	known := []string{"allreduce", "barrier"}
	for list, want := range map[string][]string{"all": known, "barrier, all_reduce,all-reduce": {"barrier", "allreduce"}} {
		if got, err := words("collective", list, known); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v", list, got, err)
		}
	}
	if got, err := numbers("ranks", "4, 2,4", 2, 4); err != nil || !slices.Equal(got, []int{4, 2}) {
		t.Errorf("%v, %v", got, err)
	}
	_, noWord := words("collective", "none", known)
	_, noNumber := numbers("ranks", "2,", 2, 4)
	if fmt.Sprint(noWord) != `-collective: "none" is not one of allreduce, barrier` ||
		fmt.Sprint(noNumber) != `-ranks: "" is not a number from 2 to 4` {
		t.Errorf("%v; %v", noWord, noNumber)
	}
}

// Lists are parsed when all options are known, including those that --quick sets.
func TestListsAreOptions(t *testing.T) {
	for args, want := range map[string]string{
		"": "[a b] [a b] [1 2]", "-quick": "[b] [a b] [2]", "-quick -word a -peers none": "[a] [] [2]",
		"-numbers 3": `-numbers: "3" is not a number from 1 to 2`,
	} {
		var list, peers []string
		var ranks []int
		f := NewFlags(new(Common), "", "", map[string]string{"word": "b", "numbers": "2"})
		f.Words(&list, "word", "all", []string{"a", "b"}, ", or all")
		f.Peers(&peers, []string{"a", "b"})
		f.Numbers(&ranks, "numbers", "1,2", 1, 2, "numbers")
		got := fmt.Sprint(f.Parse(strings.Fields(args), io.Discard))
		if got == "<nil>" {
			got = fmt.Sprint(list, peers, ranks)
		}
		if got != want {
			t.Errorf("%q: %s, want %s", args, got, want)
		}
	}
}

// A program has a folder for its temporary files, which is removed whatever happens.
func TestRunLendsAFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	broken := errors.New("no disk")
	var lent string
	p := Program[Common]{
		Name:  "bench-x",
		Parse: func([]string, io.Writer) (Common, error) { return Common{Below: "."}, nil },
		Do: func(_ context.Context, _ Common, dir string, _, _ io.Writer) error {
			lent = dir
			return errors.Join(os.WriteFile(filepath.Join(dir, "file"), nil, 0o600), broken)
		},
	}
	if err := p.Run(t.Context(), nil, io.Discard, io.Discard); !errors.Is(err, broken) || !filepath.IsAbs(lent) {
		t.Errorf("%v; the folder is %s", err, lent)
	}
	if left, err := os.ReadDir("."); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	p.Parse = func([]string, io.Writer) (Common, error) { return Common{}, usage.Errorf("no such option") }
	if err := p.Run(t.Context(), nil, io.Discard, io.Discard); err == nil || errors.Is(err, broken) {
		t.Errorf("a command line that is not understood: %v", err)
	}
}
