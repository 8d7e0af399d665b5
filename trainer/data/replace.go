package data

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// replaceFile puts what write writes into a file, in place of what was there. Readers see either, whole. The
// caller holds a lock: the temporary file, which may be there from a process that was killed, is nobody's then, of
// this node. No sync: what a power cut leaves is for the reader to find out.
func replaceFile(at cached, write func(io.Writer) error) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	temp := fmt.Sprintf(".%s.%s.tmp", at.name, filepath.Base(host))
	if err := at.in.Remove(temp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := at.in.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = errors.Join(write(f), f.Close())
	if err == nil {
		err = at.in.Rename(temp, at.name)
	}
	if err != nil {
		return errors.Join(err, at.in.Remove(temp))
	}
	return nil
}
