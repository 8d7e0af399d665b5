package tensorboard

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Writer adds events to one file. It is used by one goroutine at a time.
type Writer struct{ file *os.File }

// Create makes a new file in dir, which is made, too. TensorBoard shows the files of a folder as one run, so that an attempt that
// goes on adds its own. Its name has the time and the host, as TensorBoard's own do.
func Create(dir string, at time.Time, host string) (*Writer, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of TensorBoard events: %w", err)
	}
	host = strings.Map(func(r rune) rune {
		if r == '/' || r < ' ' {
			return '_'
		}
		return r
	}, host)
	name := fmt.Sprintf("events.out.tfevents.%010d.%s.%d", at.Unix(), host, os.Getpid())
	file, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make a file of TensorBoard events: %w", err)
	}
	w := &Writer{file}
	if err := w.write(versionEvent(at)); err != nil {
		file.Close()
		return nil, err
	}
	return w, nil
}

// Scalars adds the numbers of a step. A name like "loss/train" is shown in the group "loss".
func (w *Writer) Scalars(step int64, at time.Time, values map[string]float64) error {
	return w.write(scalarsEvent(step, at, values))
}

// write adds one record in one Write, so that who reads meanwhile sees whole ones.
func (w *Writer) write(event []byte) error {
	if _, err := w.file.Write(record(event)); err != nil {
		return fmt.Errorf("write TensorBoard events: %w", err)
	}
	return nil
}

// Close closes the file.
func (w *Writer) Close() error { return w.file.Close() }
