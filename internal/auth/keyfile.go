package auth

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"ddpbatch/internal/vfs"
)

// KeyFile returns the secret in the file at path, which holds 64 hexadecimal
// digits and, if it likes, a newline. Where there is no such file, KeyFile
// makes one with a new secret, mode 0600, and the folders above it, mode 0700; of several
// processes that do so at once, on one machine or over NFS, all get the same secret.
//
// A file that another user owns, or that anyone but its owner may read or
// write, is refused, also behind a symbolic link.
func KeyFile(path string) (Secret, error) {
	s, err := readKey(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = createKey(path); err == nil {
			s, err = readKey(path)
		}
	}
	if err != nil {
		return Secret{}, fmt.Errorf("key file %s: %w", path, err)
	}
	return s, nil
}

func readKey(path string) (Secret, error) {
	f, info, err := vfs.OpenRegular(path)
	if err != nil {
		return Secret{}, bare(err)
	}
	defer f.Close()
	if err := private(info); err != nil {
		return Secret{}, err
	}
	text, err := io.ReadAll(io.LimitReader(f, 128))
	if err != nil {
		return Secret{}, bare(err)
	}
	return ParseSecret(strings.TrimSuffix(string(text), "\n"))
}

// private refuses what others could have read or written.
func private(info fs.FileInfo) error {
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return fmt.Errorf("its mode is %#o, so others may have read or changed it: delete it, and a new one is made", mode)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return errors.New("cannot tell who owns it")
	}
	if uid := os.Geteuid(); int(stat.Uid) != uid {
		return fmt.Errorf("user %d owns it, and not user %d who runs this: name another file", stat.Uid, uid)
	}
	return nil
}

// createKey makes the file if it is still absent. It is written whole under
// another name and then linked: link(2), unlike rename(2), leaves a file that
// is already there alone.
func createKey(path string) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	s, err := NewSecret()
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(s.Hex() + "\n")
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// bare drops the path from an error, which names it already.
func bare(err error) error {
	var perr *fs.PathError
	if errors.As(err, &perr) {
		return perr.Err
	}
	return err
}
