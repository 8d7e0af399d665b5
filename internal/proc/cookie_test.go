package proc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"golang.org/x/sys/unix"
)

func TestFindCookies(t *testing.T) {
	const v = CookieVariable + "="
	a, b := strings.Repeat("a", 32), strings.Repeat("b", 32)
	for name, test := range map[string]struct {
		environ string
		want    []string
	}{
		"first":            {v + a + "\x00X=1\x00", []string{a}},
		"last":             {"X=1\x00" + v + a + "\x00", []string{a}},
		"two":              {v + a + "\x00X=\x00" + v + b + "\x00", []string{a, b}},
		"none":             {"X=1\x00", nil},
		"part of a name":   {"X" + v + a + "\x00", nil},
		"part of a value":  {"X=" + v + a + "\x00", nil},
		"another name":     {CookieVariable + "S=" + a + "\x00", nil},
		"not ended":        {v + a, nil},
		"longer":           {v + a + "a\x00", []string{a + "a"}},
		"much longer":      {v + a + strings.Repeat("a", 1<<20) + "\x00", []string{a + "a"}},
		"behind a big one": {strings.Repeat("x", 1<<20) + "\x00" + v + a + "\x00", []string{a}},
		"zeros":            {"\x00\x00\x00" + v + a + "\x00\x00", []string{a}},
	} {
		for _, size := range []int{1, 7, 16 << 10} {
			got := findCookies(strings.NewReader(test.environ), make([]byte, size))
			if got.err != nil || got.empty || !slices.Equal(got.cookies, test.want) {
				t.Errorf("%s, in pieces of %d: %.80q; want %q", name, size, got.cookies, test.want)
			}
		}
	}
	if got := findCookies(strings.NewReader(""), make([]byte, 8)); !got.empty || got.err != nil {
		t.Errorf("nothing: %+v", got)
	}
	broken := errors.New("broken")
	r := io.MultiReader(strings.NewReader(v+a+"\x00"), iotest.ErrReader(broken))
	if got := findCookies(r, make([]byte, 8)); !errors.Is(got.err, broken) {
		t.Errorf("an error: %+v", got)
	}
}

// The plain way is to have all of it and to split it.
func FuzzFindCookies(f *testing.F) {
	f.Add([]byte("X=1\x00"+CookieVariable+"=abc\x00"), 3)
	f.Fuzz(func(t *testing.T, environ []byte, size int) {
		size = 1 + max(0, size)%4096
		got := findCookies(bytes.NewReader(environ), make([]byte, size)).cookies
		var want []string
		entries := strings.Split(string(environ), "\x00")
		for _, entry := range entries[:len(entries)-1] {
			if value, ok := strings.CutPrefix(entry, CookieVariable+"="); ok && len(want) < maxCookies {
				want = append(want, value[:min(len(value), 2*cookieBytes+1)])
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

func TestNewCookie(t *testing.T) {
	if a, b := NewCookie(), NewCookie(); a == b || checkCookie(a) != nil {
		t.Errorf("%q, %q", a, b)
	}
}

// limitsText is what /proc tells of a process's limits.
func limitsText(t *testing.T, pid int) []byte {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// locks is a process's limit of file locks.
func locks(t *testing.T, pid int) unix.Rlimit {
	t.Helper()
	var l unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_LOCKS, nil, &l); err != nil {
		t.Fatal(err)
	}
	return l
}

// A child with a cookie has its mark, in which alone its limits differ, as have those below it; nobody else has.
func TestChildrenAreMarked(t *testing.T) {
	cookie, own := newCookie(t), locks(t, 0)
	_, lines := startTest(t, shell(cookie, "echo self $$; env -i sleep 1000 & echo below $!; wait"), Start)
	plain, _ := startTest(t, exec.Command("sleep", "1000"), Start)
	helper := exec.Command("sleep", "1000")
	if err := helper.Start(); err != nil {
		t.Fatal(err)
	}
	defer helper.Wait()
	defer helper.Process.Kill()
	for word, pid := range pidsAfter(t, lines, "self", "below") {
		if got := locks(t, pid); mark(got.Cur) != markOf(cookie) || got.Max != own.Max || readMark(pid) != markOf(cookie) || parseMark(limitsText(t, pid)) != markOf(cookie) {
			t.Errorf("%s: %+v, read as %d; want %d, and the hard limit %d", word, got, readMark(pid), markOf(cookie), own.Max)
		}
	}
	for what, pid := range map[string]int{"this process": os.Getpid(), "one without a cookie": plain.Pid(), "one of os/exec": helper.Process.Pid} {
		if got := locks(t, pid); got != own || readMark(pid) != 0 || parseMark(limitsText(t, pid)) != 0 {
			t.Errorf("%s: %+v, read as %d; want %+v", what, got, readMark(pid), own)
		}
	}
}

func TestMarkOf(t *testing.T) {
	for cookie, want := range map[string]mark{
		strings.Repeat("0", 32):                      1 << 62,
		strings.Repeat("f", 32):                      1<<63 - 1,
		"8000000000000001" + strings.Repeat("a", 16): 1<<62 + 1,
	} {
		if got := markOf(cookie); got != want {
			t.Errorf("%s: %d, want %d", cookie, got, want)
		}
	}
}

// Where the hard limit leaves no room for marks this is said, and processes start as before.
func TestNoRoomForMarks(t *testing.T) {
	cookie := newCookie(t)
	p, lines := startTest(t, as("unmarked", cookie), Start)
	wait(t, p)
	if got := tail(t, lines); !strings.Contains(got, "file locks: invalid argument") || !strings.HasSuffix(got, "started 1000 0\n") {
		t.Errorf("it said %q", got)
	}
}

// Who has the mark, and another's cookie, belongs to a run within the run that could not mark its own; and a child of this process that
// was started elsewhere at that moment belongs to nobody.
func TestSweepGoesByMoreThanMarks(t *testing.T) {
	cookie, other := newCookie(t), newCookie(t)
	_, lines := startTest(t, shell(cookie, CookieVariable+`=$1 setsid sleep 1000 & echo nested $!; wait`, other), Start)
	nested := pidAfter(t, lines, "nested")
	executes(t, "sleep", nested)
	helper := exec.Command("sleep", "1000")
	helper.Env = []string{}
	if err := markOf(cookie).start(helper.Start); err != nil {
		t.Fatal(err)
	}
	defer helper.Wait()
	defer helper.Process.Kill()
	if readMark(nested) != markOf(cookie) || readMark(helper.Process.Pid) != markOf(cookie) {
		t.Fatal("they have no mark: there is nothing to spare")
	}
	swept(t, Sweep, cookie)
	if !alive(nested) || !alive(helper.Process.Pid) {
		t.Errorf("alive: the nested run's %v, the helper %v", alive(nested), alive(helper.Process.Pid))
	}
}

func TestParseMark(t *testing.T) {
	for text, want := range map[string]mark{
		"": 0,
		"Limit Soft Limit Hard Limit Units\nMax file locks            unlimited            unlimited            locks     \n": 0,
		"Max file locks            1000            unlimited            locks     \n":                                         0,
		"Max file locks            4611686018427387904  unlimited            locks     \n":                                    1 << 62,
		"Max pending signals       4611686018427387905  unlimited            signals   \n":                                    0,
		"Max file locks            9223372036854775807  9223372036854775807  locks     \n":                                    1<<63 - 1,
		"Max file locks            9223372036854775808  unlimited            locks     \n":                                    0,
		"Max file locks \n": 0,
	} {
		if got := parseMark([]byte(text)); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

// The mark of another user's process is read all the same, as that of a child of sudo's must be.
func TestReadMarkOfOthers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can start a process of another user")
	}
	cookie := newCookie(t)
	p, _ := startTest(t, shell(cookie, "exec sleep 1000"), Start)
	got, err := as("other", NewCookie(), fmt.Sprint(p.Pid())).Output()
	if want := fmt.Sprintf("operation not permitted %d\n", markOf(cookie)); err != nil || string(got) != want {
		t.Errorf("it said %q, %v; want %q", got, err, want)
	}
}
