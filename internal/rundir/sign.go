package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"
)

// LastSign is when an attempt last left a trace: a line of metrics, or a change of a file of its own, its ranks' logs among them. Zero: it
// left none.
func (d *Dir) LastSign(attempt int) (time.Time, error) {
	var last time.Time
	m, ok, err := d.LastMetrics()
	if ok && m.Attempt == attempt {
		last = m.Time
	}
	walkErr := filepath.WalkDir(d.attemptPath(attempt), func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if err == nil && info.ModTime().After(last) {
			last = info.ModTime()
		}
		return err
	})
	if walkErr != nil {
		walkErr = fmt.Errorf("look for the last sign of attempt %d: %w", attempt, walkErr)
	}
	return last, errors.Join(err, walkErr)
}
