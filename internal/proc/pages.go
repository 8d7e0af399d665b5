package proc

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// ReleaseFilePages takes out of this process's memory the pages of files that it only reads, such as its program's. They stay in the page
// cache, and what is needed of them comes back when it is touched (madvise(2), MADV_DONTNEED).
//
// A process begins with most of its program mapped: Go initializes all packages, and the kernel maps 64 KiB or more around each touch.
func ReleaseFilePages() error {
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return fmt.Errorf("look at this process's memory: %w", err)
	}
	defer f.Close()
	all, err := unchangedMappings(f)
	if err != nil {
		return fmt.Errorf("look at this process's memory: %w", err)
	}
	for _, m := range all {
		if _, _, e := unix.Syscall(unix.SYS_MADVISE, m.begin, m.end-m.begin, unix.MADV_DONTNEED); e != 0 {
			return fmt.Errorf("release pages of files: %w", e)
		}
	}
	return nil
}

// mapping is a range of addresses.
type mapping struct{ begin, end uintptr }

// unchangedMappings lists the private mappings of files in smaps (proc(5)) that cannot be written to and have no page of the process's own,
// in memory or swapped out. A loader's relocations are such pages, and a debugger's breakpoints: the file does not have them.
func unchangedMappings(smaps io.Reader) (found []mapping, err error) {
	var m mapping
	fixed, same := false, false
	for lines := bufio.NewScanner(smaps); ; {
		if !lines.Scan() {
			return found, lines.Err()
		}
		name, rest, _ := strings.Cut(lines.Text(), " ")
		rest = strings.TrimSpace(rest)
		switch {
		case !strings.HasSuffix(name, ":"): // 00400000-00dfc000 r-xp 00000000 fe:00 9981603 /usr/bin/program
			var mode, device string
			var offset, inode uint64
			if _, err := fmt.Sscanf(lines.Text(), "%x-%x %s %x %s %d", &m.begin, &m.end, &mode, &offset, &device, &inode); err != nil {
				return nil, fmt.Errorf("smaps has the line %q: %w", lines.Text(), err)
			}
			fixed, same = inode != 0 && (mode == "r-xp" || mode == "r--p"), false
		case name == "Anonymous:":
			same = rest == "0 kB"
		case name == "Swap:" && fixed && same && rest == "0 kB":
			found = append(found, m)
		}
	}
}
