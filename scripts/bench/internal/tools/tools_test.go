package tools

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestRunShowsTheOutput(t *testing.T) {
	if err := Run(t.Context(), "/bin/sh", "-c", "exit 0"); err != nil {
		t.Error(err)
	}
	err := Run(t.Context(), "/bin/sh", "-c", "echo the reason >&2; exit 3")
	if err == nil || !strings.Contains(err.Error(), "exit status 3\nthe reason") {
		t.Errorf("%v", err)
	}
}

func TestFirstAndLastLine(t *testing.T) {
	if got := FirstLine(t.Context(), "/bin/sh", "-c", `printf 'a  b\nc\n'`); got != "a b" {
		t.Errorf("%q", got)
	}
	if got := FirstLine(t.Context(), "/nonexistent/mpirun"); got != "" {
		t.Errorf("%q", got)
	}
	for text, want := range map[string]string{"": "", "a": "a", "a\nb\n\n": "b"} {
		if got := LastLine(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// The error for each missing peer names its Debian packages.
func TestMissingPeersNameTheirPackages(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for mpi := range libraries {
		_, err := CompileMPI(t.Context(), t.TempDir(), mpi, nil)
		var lack *MissingError
		if !errors.As(err, &lack) || !strings.Contains(lack.Packages, "lib"+mpi+"-dev") || lack.What == "" {
			t.Errorf("%s: %v", mpi, err)
		}
	}
}

// One error names all missing peers, and the peers that are installed. Any other error is returned at once.
func TestEachPeerThatIsMissingIsNamed(t *testing.T) {
	add := func(peer string) error {
		if peer == "MPI" {
			return nil
		}
		return fmt.Errorf("%s: %w", peer, &MissingError{peer, "lib" + peer})
	}
	for want, peers := range map[string][]string{
		"not installed: A, B\n  install them (Debian): apt-get install libA libB\n  or leave them out: --peers MPI": {"A", "MPI", "B"},
		"not installed: A\n  install them (Debian): apt-get install libA\n  or leave them out: --peers none":        {"A"},
	} {
		if err := EachPeer(peers, add); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%v: %v", peers, err)
		}
	}
	if err := EachPeer([]string{"MPI"}, add); err != nil {
		t.Error(err)
	}
	broken := errors.New("no compiler")
	if err := EachPeer([]string{"A", "B"}, func(string) error { return broken }); err != broken {
		t.Errorf("%v", err)
	}
}

func TestDdpbatchGivesItsVersion(t *testing.T) {
	if program, version, err := Ddpbatch(t.Context(), t.TempDir(), "/bin/echo"); program != "/bin/echo" ||
		version != "version" || err != nil {
		t.Errorf("%s, %s, %v", program, version, err)
	}
	if _, _, err := Ddpbatch(t.Context(), t.TempDir(), "/bin/true"); err == nil {
		t.Error("what does not tell its version is taken for ddpbatch")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := Ddpbatch(ctx, t.TempDir(), "/bin/echo"); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}
