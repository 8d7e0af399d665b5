package data

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// replaceFile puts what write writes into the file at path, in place of what was there. Readers see either, whole. The
// caller holds a lock: the temporary file, which may be there from a process that was killed, is nobody's then, of
// this node. No sync: what a power cut leaves is for the reader to find out.
func replaceFile(path string, write func(io.Writer) error) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	temp := filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s.%s.tmp", filepath.Base(path), filepath.Base(host)))
	if err := os.Remove(temp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = errors.Join(write(f), f.Close())
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	return nil
}
