package data

import (
	"context"
	"ddpbatch/internal/replace"
	"ddpbatch/internal/vfs"
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
	o := replace.Options{Temp: temp, NoSync: true}
	return replace.FileWith(context.Background(), vfs.Held(at.in), filepath.Join(at.in.Name(), at.name), o, write)
}
