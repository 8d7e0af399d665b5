//go:build !static && linux && (amd64 || arm64)

package clib

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"unsafe"
)

// snprintf takes as many arguments as it is given, in registers and on the stack. All of them must arrive, in order.
func TestArgumentsArriveInOrder(t *testing.T) {
	snprintf := Self.Symbol("snprintf")
	if snprintf == 0 {
		t.Fatal("the C library has no snprintf")
	}
	const most = maxArguments - 3
	call := new(Call)
	for n := range most + 1 {
		format, text := Text(strings.Repeat("%ld ", n)), Buffer(1024)
		args := []uintptr{Address(&text[0]), uintptr(len(text)), Address(&format[0])}
		want := ""
		for i := range n {
			value := i*1_000_000_007 - 5
			args = append(args, uintptr(value))
			want += fmt.Sprint(value, " ")
		}
		length := call.Do(snprintf, args...)
		runtime.KeepAlive(text)
		runtime.KeepAlive(format)
		if got, _, _ := strings.Cut(string(text), "\x00"); got != want || int(int32(length)) != len(want) {
			t.Errorf("%d arguments: %q of %d bytes, want %q", n, got, int32(length), want)
		}
	}
}

func BenchmarkCall(b *testing.B) {
	labs := Self.Symbol("labs")
	call := New[Call]()
	b.ReportAllocs()
	for b.Loop() {
		call.Do(labs, 7)
	}
}

func TestCallAllocatesNothing(t *testing.T) {
	labs := Self.Symbol("labs")
	call := new(Call)
	if n := testing.AllocsPerRun(100, func() {
		if call.Do(labs, ^uintptr(6)) != 7 {
			t.Fatal("labs(-7) is not 7")
		}
	}); n != 0 {
		t.Errorf("a call allocates %v times", n)
	}
}

// A callback from C in the middle of a call gets its arguments.
func TestCallbackGetsItsArguments(t *testing.T) {
	numbers := New[[5]int64]()
	*numbers = [5]int64{3, -7, 1 << 40, 0, 5}
	calls := 0
	compare := Callback(func(a, b, _ uintptr) uintptr {
		calls++
		x, y := **(**int64)(unsafe.Pointer(&a)), **(**int64)(unsafe.Pointer(&b))
		return uintptr(cmp.Compare(x, y))
	})
	New[Call]().Do(Self.Symbol("qsort"), Address(numbers), uintptr(len(numbers)), 8, uintptr(compare))
	if want := [5]int64{-7, 0, 3, 5, 1 << 40}; *numbers != want || calls < 4 {
		t.Errorf("qsort made %v of it with %d comparisons", *numbers, calls)
	}
}

func TestSetenvIsForCAlone(t *testing.T) {
	const name = "DDPBATCH_TEST_CLIB"
	if got := Getenv(name); got != "" {
		t.Fatalf("it is there: %q", got)
	}
	for _, c := range []struct {
		value     string
		overwrite bool
		want      string
	}{{"one", false, "one"}, {"two", false, "one"}, {"three", true, "three"}} {
		if err := Setenv(name, c.value, c.overwrite); err != nil {
			t.Fatal(err)
		}
		if got := Getenv(name); got != c.want {
			t.Errorf("after %q, overwrite %v: %q, want %q", c.value, c.overwrite, got, c.want)
		}
	}
	if _, found := os.LookupEnv(name); found {
		t.Error("Go's environment has it, too")
	}
}

func TestWhatIsNotThereIsNotFound(t *testing.T) {
	if _, err := Open("libddpbatch-none.so.7"); !errors.Is(err, ErrNotFound) {
		t.Errorf("%v, want ErrNotFound", err)
	}
	if _, err := Open("/dev/null"); err == nil || errors.Is(err, ErrNotFound) {
		t.Errorf("a file that is not a library: %v", err)
	}
	if file := Self.Symbol("labs").File(); !strings.Contains(file, "/libc") {
		t.Errorf("labs comes from %q", file)
	}
	if Self.Symbol("ddpbatch_none") != 0 {
		t.Error("a function that is not there has an address")
	}
}

// Signals are blocked only on the thread of f, and only while f runs: afterwards the mask is what it was before.
func TestSignalsAreBlockedMeanwhile(t *testing.T) {
	blocked := func() string {
		status, err := os.ReadFile("/proc/thread-self/status")
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(status), "SigBlk:\t")
		line, _, _ := strings.Cut(rest, "\n")
		return line
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := blocked()
	failed := errors.New("failed")
	err := WithoutSignals(func() error {
		// KILL and STOP cannot be blocked (signal(7)), and glibc reserves 32 and 33
		if got := blocked(); !strings.HasSuffix(got, "fffffffe7ffbfeff") && !strings.HasSuffix(got, "fffffffffffbfeff") {
			t.Errorf("blocked: %s", got)
		}
		return failed
	})
	if err != failed {
		t.Errorf("%v, want f's error", err)
	}
	if after := blocked(); after != before {
		t.Errorf("blocked afterwards: %s, want %s", after, before)
	}
}
