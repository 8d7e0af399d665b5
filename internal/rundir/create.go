package rundir

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"ddpbatch/internal/vfs"
)

// CreateConfig describes a new run directory.
type CreateConfig struct {
	Parent  string    // runs/, created if missing; ErrExposed if others can replace what is in it
	Spec    Spec      // Create sets Schema, Run, Created and SHA256
	JobFile []byte    // copied to job.toml
	Binary  string    // copied to bin/ddpbatch
	Now     time.Time // the time in the directory's name

	// Code copies the user's code durably into the new directory, as CodeName, and its description as CodeRecordName and CodeDiffName. It
	// is nil if the run has no copy.
	Code func(dir string) error
}

// Create creates a run directory below c.Parent. It builds it under another name and renames it. If it fails nothing is left, except a
// parent that it had to create.
func Create(c CreateConfig) (*Dir, error) {
	d, err := create(c)
	if err != nil {
		return nil, fmt.Errorf("make a run directory in %s: %w", c.Parent, err)
	}
	return d, nil
}

func create(c CreateConfig) (_ *Dir, err error) {
	c.Spec.Schema, c.Spec.Created = specSchema, c.Now
	if err := c.Spec.check(); err != nil {
		return nil, err
	}
	parent, err := filepath.Abs(c.Parent)
	if err != nil {
		return nil, err
	}
	if err := makeParent(parent); err != nil {
		return nil, err
	}
	temp, err := os.MkdirTemp(parent, ".new-*") // mode 0700
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(temp))
		}
	}()
	if c.Spec.SHA256, err = writeContents(temp, c); err != nil {
		return nil, err
	}
	d, err := giveName(temp, parent, c.Spec, randomSuffix)
	if err != nil {
		return nil, err
	}
	if err := d.CheckOwner(); err != nil { // some file servers map root to nobody: no job could run from there
		return nil, errors.Join(err, os.RemoveAll(d.path))
	}
	return d, nil
}

// writeContents fills a new run directory with everything except the spec, which holds the directory's final name.
func writeContents(dir string, c CreateConfig) (sum string, err error) {
	for _, name := range []string{"bin", attemptsName, CheckpointsName} {
		// It may exist already, if the reply of a file server was lost.
		if err := vfs.PrivateDir(vfs.OS{}, filepath.Join(dir, name)); err != nil {
			return "", err
		}
	}
	if c.Code != nil {
		if err := c.Code(dir); err != nil {
			return "", err
		}
	}
	if err := writeBytes(filepath.Join(dir, jobFileName), 0o600, c.JobFile); err != nil {
		return "", err
	}
	return copyBinary(c.Binary, filepath.Join(dir, binaryName))
}

func copyBinary(from, to string) (sum string, err error) {
	src, _, err := vfs.OpenRegular(from)
	if err != nil {
		return "", fmt.Errorf("copy the program: %w", err)
	}
	defer src.Close()
	hash := sha256.New()
	err = writeFile(to, 0o700, func(w io.Writer) error {
		_, err := io.Copy(io.MultiWriter(w, hash), src)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("copy the program: %w", err)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// giveName gives the directory temp its final name. If a name is taken, rename fails with ENOTEMPTY (EEXIST on some file systems), since a
// run directory is never empty, with ENOTDIR if the name is that of a file or link, and with EPERM if it is another user's and the parent
// is sticky. Then giveName tries another suffix. There are too many suffixes for another user to take all of them beforehand.
func giveName(temp, parent string, s Spec, suffix func() string) (*Dir, error) {
	const tries = 64
	for range tries {
		s.Run = fmt.Sprintf("%s-%s-%s", s.Name, s.Created.Format("20060102-150405"), suffix())
		if err := writeSpec(filepath.Join(temp, specName), s); err != nil {
			return nil, err
		}
		path := filepath.Join(parent, s.Run)
		err := vfs.Rename(vfs.OS{}, temp, path, -1)
		if errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST) {
			continue
		}
		if _, taken := os.Lstat(path); taken == nil && (errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EPERM)) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := (vfs.OS{}).SyncDir(parent); err != nil {
			return nil, errors.Join(err, os.RemoveAll(path))
		}
		return &Dir{path: path, spec: s}, nil
	}
	return nil, fmt.Errorf("%d names for this second are taken", tries)
}

func randomSuffix() string {
	var bytes [4]byte
	rand.Read(bytes[:]) // never returns an error; see crypto/rand
	return hex.EncodeToString(bytes[:])
}

// Discard removes a run that never began: one that Create has just made and that no job or attempt has used. It refuses to remove others.
// Jobs that were canceled before they began an attempt do not count, and their links are removed too.
func (d *Dir) Discard(cancelled ...string) error {
	id, err := d.JobID()
	if err != nil {
		return err
	}
	if slices.Contains(cancelled, id) {
		id = ""
	}
	newest, err := d.NewestAttempt()
	if err != nil {
		return err
	}
	if d.root != nil || id != "" || newest > 0 {
		return fmt.Errorf("remove the run directory %s: it has been used", d.path)
	}
	for _, job := range cancelled {
		link := d.jobLink(job)
		if target, err := os.Readlink(link); err == nil && target == filepath.Base(d.path) {
			_ = os.Remove(link) // a link that remains points nowhere and is ignored
		}
	}
	if err := os.RemoveAll(d.path); err != nil {
		return fmt.Errorf("remove the run directory: %w", err)
	}
	return nil
}
