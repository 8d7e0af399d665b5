package sim

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"ddpbatch/internal/testkit"
)

// newWorld skips the test if this machine does not permit namespaces.
func newWorld(t *testing.T, disk string, network bool) *Namespaces {
	t.Helper()
	w, err := NewNamespaces(t.Context(), disk, network)
	if err != nil {
		t.Skipf("this machine cannot: %v", err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// inside runs a shell line on a node, and returns its output, including standard error.
func inside(t *testing.T, w *Namespaces, node, line string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	words := w.enter(node, t.TempDir(), []string{"sh", "-c", line})
	text, err := exec.CommandContext(ctx, words[0], words[1:]...).CombinedOutput()
	return strings.TrimSpace(string(text)), err
}

func TestWorldCutsANodeOff(t *testing.T) {
	w := newWorld(t, t.TempDir(), true)
	nodes := PretendNodes(3)
	for i := range nodes {
		nodes[i] = NetworkNode(nodes[i], i)
		if err := w.AddNode(t.Context(), nodes[i]); err != nil {
			t.Fatal(err)
		}
	}
	// the port is closed: a node that can be reached refuses the connection, and one that is cut off does not answer
	try := func(from, to, seconds int) bool {
		text, _ := inside(t, w, nodes[from].Name,
			fmt.Sprintf("timeout %d bash -c 'exec 3<>/dev/tcp/%s/9' 2>&1", seconds, nodes[to].Address))
		return strings.Contains(text, "refused")
	}
	reach := func(from, to int) bool { return try(from, to, 40) }
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("there is no bash to connect with")
	}
	if !reach(0, 1) || !reach(2, 0) {
		t.Fatal("the nodes do not reach each other")
	}
	if err := w.cut("node2"); err != nil {
		t.Fatal(err)
	}
	if try(0, 1, 2) || try(1, 0, 2) {
		t.Error("node2 is reached although it is cut off")
	}
	if !reach(0, 2) {
		t.Error("the others do not reach each other any more")
	}
	ids := map[string]bool{}
	for _, n := range nodes {
		id, err := inside(t, w, n.Name, "cat /proc/sys/kernel/random/boot_id")
		if err != nil || ids[id] {
			t.Errorf("%s is another's machine: %q, %v", n.Name, id, err)
		}
		ids[id] = true
	}
	if err := w.cut("node9"); err == nil {
		t.Error("a node that is not there was cut off")
	}
	if names, _ := net.Interfaces(); len(names) > 0 {
		for _, n := range names {
			if n.Name == "switch" || strings.HasPrefix(n.Name, "port") {
				t.Errorf("%s shows outside", n.Name)
			}
		}
	}
}

func TestWorldFillsItsDisk(t *testing.T) {
	disk := filepath.Join(t.TempDir(), "a folder", "checkpoints")
	if err := os.MkdirAll(disk, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(disk, "old"), []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, disk, false)
	write := "cat '" + disk + "/old' && echo new | cat >'" + disk + "/new'"
	if text, err := inside(t, w, "node1", write); err != nil || text != "kept" {
		t.Fatalf("before: %q, %v", text, err)
	}
	if err := w.fill(); err != nil {
		t.Skipf("this machine cannot: %v", err)
	}
	if text, err := inside(t, w, "node1", strings.ReplaceAll(write, "/new", "/newer")); err == nil ||
		!strings.Contains(text, "No space left on device") || !strings.HasPrefix(text, "kept") {
		t.Errorf("on the full disk: %q, %v", text, err)
	}
	if err := os.WriteFile(filepath.Join(disk, "outside"), []byte("room"), 0o600); err != nil {
		t.Errorf("it is full for others, too: %v", err)
	}
	if err := w.empty(); err != nil {
		t.Fatal(err)
	}
	if text, err := inside(t, w, "node1", strings.ReplaceAll(write, "/new", "/newest")); err != nil || text != "kept" {
		t.Errorf("with room again: %q, %v", text, err)
	}
}

func TestWorldThatCannotBeMadeSaysWhy(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if w, err := NewNamespaces(t.Context(), t.TempDir(), true); err == nil || !strings.Contains(err.Error(), "unshare") {
		t.Errorf("%v, %v", w, err)
	}
}
