package ucx

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"ddpbatch/internal/clib"
	"ddpbatch/internal/testkit/ucxhost"
)

// cacheVariable makes this test a process in which UCX uses its registration cache.
const cacheVariable = "DDPBATCH_TEST_UCX_CACHE"

// A message contains the bytes that are in memory when it is sent. That holds for Alloc's memory, and even for Go's, which returns memory
// to the system between two messages and gets other pages at the same addresses. With UCX's registration cache some messages have old
// bytes, which shows that the test can fail.
func TestOldBytesAreNotSent(t *testing.T) {
	needDevice(t)
	if os.Getenv(cacheVariable) != "" {
		turnOnCache(t)
	}
	if n := oldMessages(t, true); n > 0 {
		t.Errorf("%d of %d messages from Alloc's memory had other bytes", n, oldRounds)
	}
	if n := oldMessages(t, false); n > 0 {
		t.Errorf("%d of %d messages from Go's memory had other bytes", n, oldRounds)
	}
	if os.Getenv(cacheVariable) != "" || !strings.Contains(os.Getenv("UCX_TLS"), "rc") {
		return // ud copies everything that it sends
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), cacheVariable+"=1")
	out, _ := cmd.CombinedOutput()
	found := regexp.MustCompile(`(\d+) of \d+ messages from Go's memory`).FindSubmatch(out)
	if found == nil {
		t.Fatalf("with UCX's cache all messages were right, so this test finds nothing: %s", out)
	}
	n, _ := strconv.Atoi(string(found[1]))
	t.Logf("with UCX's cache %d of %d messages were wrong", n, oldRounds)
}

// turnOnCache turns UCX's registration cache on. It must be called before Open, in which UCX reads its variables.
func turnOnCache(t *testing.T) {
	t.Helper()
	lib, err := loadOnce()
	if err != nil {
		t.Fatal(err)
	}
	name, _ := uncached(lib.version)
	value := map[string]string{"UCX_IB_REG_METHODS": "rcache", "UCX_RCACHE_ENABLE": "y"}[name]
	if err := clib.Setenv(name, value, true); err != nil {
		t.Fatal(err)
	}
}

const oldRounds = 12

// oldMessages counts the messages that arrived with other bytes than they were sent with.
func oldMessages(t *testing.T, fromAlloc bool) (wrong int) {
	a, b := pair(t)
	const size = 8 << 20
	got := alloc(t, b, size)
	var memory []byte
	if fromAlloc {
		memory = alloc(t, a, size)
	}
	for round := range oldRounds {
		if !fromAlloc {
			memory = make([]byte, size)
			a.worker.slab.add(regionOf(memory)) // the link takes it for registered, and UCX registers it for each message
		}
		for i := range memory {
			memory[i] = byte(i*7 + round*31)
		}
		exchange(t, a, b, got, memory)
		if !bytes.Equal(got, memory) {
			wrong++
		}
		if !fromAlloc {
			a.worker.forget(memory)
			memory = nil
			debug.FreeOSMemory()
		}
	}
	return wrong
}

// forget removes memory, which UCX has not registered, from the worker's slab.
func (w *Worker) forget(memory []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i, found := w.slab.search(regionOf(memory).base); found {
		w.slab.regions = append(w.slab.regions[:i], w.slab.regions[i+1:]...)
	}
}

// needDevice skips the test if no device has verbs.
func needDevice(t *testing.T) {
	t.Helper()
	_, _, err := Library()
	ucxhost.Need(t, err)
	if _, err := Devices(os.DirFS("/")); err != nil {
		t.Skipf("needs RDMA, which scripts/rdma-vm has: %v", err)
	}
}
