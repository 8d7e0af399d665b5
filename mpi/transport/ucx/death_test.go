package ucx

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
	"ddpbatch/internal/testkit/ucxhost"
)

// mortalVariable makes the test binary a rank that another process kills: rank 2 of 3, with a link to rank 0.
const mortalVariable = "DDPBATCH_TEST_UCX_MORTAL"

// mortalProcess prints its address, reads that of rank 0, writes to it, and makes progress until it is killed.
func mortalProcess() error {
	w, err := Open(Config{Rank: 2, Size: 3})
	if err != nil {
		return err
	}
	fmt.Println(hex.EncodeToString(w.Address()))
	var text string
	if _, err := fmt.Scan(&text); err != nil {
		return err
	}
	addr, err := hex.DecodeString(text)
	if err != nil {
		return err
	}
	l, err := w.Connect(0, addr)
	if err != nil {
		return err
	}
	memory, err := w.Alloc(maxMessage)
	if err != nil {
		return err
	}
	if _, err := l.Write(nil, memory); err != nil {
		return err
	}
	for {
		w.Ready(nil)
		l.Read(make([]byte, 100))
	}
}

// startMortal starts a mortalProcess, and links w to it.
func startMortal(t *testing.T, w *Worker) (*exec.Cmd, *Link) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), mortalVariable+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	text, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	addr, err := hex.DecodeString(strings.TrimSpace(text))
	if err != nil {
		t.Fatal(err)
	}
	l, err := w.Connect(2, addr)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintln(in, hex.EncodeToString(w.Address())); err != nil {
		t.Fatal(err)
	}
	return cmd, l
}

// UCX also detects a killed rank by itself, after its control link has ended, even if nothing is sent to it. That is an error of this link
// only, and does not harm the other ranks. An endpoint without a callback would end the process.
func TestSurvivorsOutliveAKilledRank(t *testing.T) {
	t.Setenv("UCX_KEEPALIVE_INTERVAL", "1s")
	links := world(t, 2)
	a, b := links[0][1], links[1][0]
	cmd, dying := startMortal(t, a.worker)
	got := make([]byte, maxMessage)
	for n := 0; n < len(got); {
		k, err := dying.Read(got)
		if err != nil {
			t.Fatal(err)
		}
		n += k
	}
	if _, err := dying.Write(nil, []byte("hello")); err != nil { // makes the connection
		t.Fatal(err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	testkit.Eventually(t, "UCX notices", func() bool {
		a.worker.Ready(nil)
		b.worker.Ready(nil)
		_, err := dying.Read(got)
		return err != nil
	})
	if _, err := dying.Write(nil, []byte("are you there?")); err == nil || !strings.Contains(err.Error(), "rank 2") {
		t.Errorf("writing: %v", err)
	}
	words := bytes.Repeat([]byte("still here "), 20000)
	exchange(t, a, b, make([]byte, len(words)), words)
	exchange(t, b, a, make([]byte, len(words)), words)
}

// A message that can no longer arrive completely does not keep its link from ending.
func TestHalfAMessageIsNotAwaitedFromAKilledRank(t *testing.T) {
	_, _, err := Library()
	ucxhost.Need(t, err)
	w, err := Open(Config{Rank: 0, Size: 3})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.CloseLinks(time.Second) }) // data under way keeps the worker
	cmd, dying := startMortal(t, w)
	testkit.Eventually(t, "the message is announced", func() bool {
		w.Ready(nil)
		return dying.arrived.len() > 0
	})
	cmd.Process.Signal(syscall.SIGSTOP)
	buf, n := make([]byte, maxMessage), 0
	if n, err = dying.Read(buf); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d of %d bytes came before the end", n, len(buf))
	cmd.Process.Kill()
	cmd.Wait()
	dying.PeerGone()
	testkit.Eventually(t, "the link ends", func() bool {
		w.Ready(nil)
		k, err := dying.Read(buf)
		if n += k; err != nil && err != io.EOF {
			t.Fatal(err)
		}
		return err == io.EOF
	})
	if n != 0 && n != len(buf) {
		t.Errorf("%d bytes of a message of %d", n, len(buf))
	}
}
