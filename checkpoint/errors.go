package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
)

var (
	// ErrNone: there is no committed checkpoint, or none of the step that was asked for.
	ErrNone = errors.New("no checkpoint")
	// ErrCorrupt: what was committed is not what is on disk. Detail is in *CorruptError.
	ErrCorrupt = errors.New("corrupt checkpoint")
	// ErrFenced: a newer attempt of the run has begun; this one must write no more.
	ErrFenced = errors.New("superseded by a newer attempt")
	// ErrNoSpace: the disk or the quota is full (ENOSPC, EDQUOT).
	ErrNoSpace = errors.New("no space for the checkpoint")
	// ErrFormatTooNew: a newer program wrote it. The checkpoint may well be good.
	ErrFormatTooNew = errors.New("checkpoint format is newer than this program")
	// ErrPermission: EACCES, EPERM or EROFS.
	ErrPermission = errors.New("no permission for the checkpoint")
	// ErrStale: a file was replaced under an open handle by another client (ESTALE on NFS), twice
	// in a row; trying again later may help.
	ErrStale = errors.New("stale file handle")
)

// CorruptError says what is wrong where. errors.Is(err, ErrCorrupt) holds for it.
type CorruptError struct {
	Path   string // the manifest or the shard
	Tensor string // whose data it is; empty where no single tensor is hit
	Detail string
}

func (e *CorruptError) Error() string {
	if e.Tensor == "" {
		return fmt.Sprintf("%v: %s: %s", ErrCorrupt, e.Path, e.Detail)
	}
	return fmt.Sprintf("%v: %s: tensor %q: %s", ErrCorrupt, e.Path, e.Tensor, e.Detail)
}

// Is makes a CorruptError match ErrCorrupt.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

func corrupt(path, format string, args ...any) error {
	return &CorruptError{Path: path, Detail: fmt.Sprintf(format, args...)}
}

// newerVersion is the version of a file that is whole, but of a format this program cannot read.
type newerVersion int64

func (v newerVersion) Error() string {
	return fmt.Sprintf("it has version %d, this program reads up to %d; use the ddpbatch that wrote it, or a later one", int64(v), formatVersion)
}

// judge turns what is wrong with the bytes of a file into the error of that file.
func judge(path string, err error) error {
	if _, ok := errors.AsType[newerVersion](err); ok {
		return fmt.Errorf("%s: %w: %w", path, ErrFormatTooNew, err)
	}
	return corrupt(path, "%v", err)
}

// classify marks an error of the file system with the sentinel of its class. A network file
// system may report a full disk at write, sync or close, so it is applied to whole operations.
func classify(err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w: %w; free space or quota, or keep fewer checkpoints", ErrNoSpace, err)
	case errors.Is(err, syscall.ESTALE):
		return fmt.Errorf("%w: %w", ErrStale, err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w: %w", ErrPermission, err)
	}
	return err
}
