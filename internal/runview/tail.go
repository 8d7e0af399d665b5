package runview

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"time"

	"ddpbatch/internal/lines"
	"ddpbatch/internal/vfs"
)

// tailer copies what has been added to a file since the last call. The file may not exist yet.
type tailer struct {
	path string
	to   io.Writer
	head func() // nil, or called before the first byte
	file *os.File
}

func (t *tailer) copy() error {
	if t.file == nil {
		f, _, err := vfs.OpenRegular(t.path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("open the log: %w", err)
		}
		t.file = f
	}
	if t.head != nil {
		if info, err := t.file.Stat(); err == nil && info.Size() == 0 {
			return nil
		}
		t.head()
		t.head = nil
	}
	if _, err := io.Copy(t.to, t.file); err != nil {
		return fmt.Errorf("copy the log %s: %w", strconv.Quote(t.path), err)
	}
	return nil
}

func (t *tailer) close() {
	if t.file != nil {
		t.file.Close()
	}
}

// openLogs are files that are shown as they grow.
type openLogs struct {
	pacer
	open  []openLog       // in the order in which they were found
	known map[string]bool // the paths of open
}

type openLog struct {
	tail  *tailer
	label *lines.Writer // nil: bytes are shown as they come
}

// add shows a file from now on, and reports whether it is new. With a label, each line of the file begins with it.
func (o *openLogs) add(path string, to io.Writer, label *lines.Writer) bool {
	if o.known[path] {
		return false
	}
	if o.known == nil {
		o.known = map[string]bool{}
	}
	o.known[path] = true
	if label != nil {
		to = label
	}
	o.open = append(o.open, openLog{&tailer{path: path, to: to}, label})
	return true
}

// copy shows what was added to the files.
func (o *openLogs) copy() error {
	for _, file := range o.open {
		if err := file.tail.copy(); err != nil {
			return err
		}
	}
	return nil
}

// finish shows unfinished lines, and closes the files.
func (o *openLogs) finish() error {
	var err error
	for _, file := range o.open {
		file.tail.close()
		if file.label != nil {
			err = errors.Join(err, file.label.Finish())
		}
	}
	o.open = nil
	return err
}

// pacer limits how often directories are read, because they are on shared file systems and may hold thousands of files.
type pacer struct{ last time.Time }

// due reports whether it is time to look for new files.
func (p *pacer) due(now time.Time) bool {
	if now.Sub(p.last) < statePoll {
		return false
	}
	p.last = now
	return true
}
