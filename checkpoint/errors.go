package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"ddpbatch/checkpoint/internal/manifest"
	"ddpbatch/checkpoint/internal/shard"
)

var (
	// ErrNone: there is no committed checkpoint, or none of the requested step.
	ErrNone = errors.New("no checkpoint")
	// ErrCorrupt: what is on disk is not what was committed. Detail is in *CorruptError.
	ErrCorrupt = errors.New("corrupt checkpoint")
	// ErrFenced: a newer attempt of the run has begun; this one must write no more.
	ErrFenced = errors.New("superseded by a newer attempt")
	// ErrNoSpace: the disk or the quota is full (ENOSPC, EDQUOT).
	ErrNoSpace = errors.New("no space for the checkpoint")
	// ErrFormatTooNew: a newer program wrote the checkpoint, which may be good.
	ErrFormatTooNew = errors.New("checkpoint format is newer than this program")
	// ErrPermission: EACCES, EPERM or EROFS.
	ErrPermission = errors.New("no permission for the checkpoint")
	// ErrStale: another client kept replacing a file under an open handle (ESTALE on NFS).
	// Trying again later may help.
	ErrStale = errors.New("stale file handle")
)

// CorruptError describes damage and its place. It matches ErrCorrupt.
type CorruptError struct {
	Path   string // the manifest or the shard
	Tensor string // whose data is damaged; empty if the damage is not in a single tensor
	Detail string

	missing bool // a file, or the base, was not found; another client's view may be the cause
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

// judgeManifest turns an error about the bytes of a manifest into the error of its file.
func judgeManifest(path string, err error) error {
	if _, ok := errors.AsType[*manifest.Newer](err); ok {
		return fmt.Errorf("%s: %w: %w", path, ErrFormatTooNew, err)
	}
	return corrupt(path, "%v", err)
}

// judgeShard does the same for a shard. It returns errors that are not about the bytes as they are.
func judgeShard(path string, err error) error {
	if damage, ok := errors.AsType[*shard.Damage](err); ok {
		return &CorruptError{Path: path, Tensor: damage.Name, Detail: damage.Detail}
	}
	if _, ok := errors.AsType[*shard.Newer](err); ok {
		return fmt.Errorf("%s: %w: %w", path, ErrFormatTooNew, err)
	}
	return err
}

// classify wraps an error of the file system with the sentinel of its class. A network file
// system may report a full disk at write, sync or close, so classify is applied to whole operations. An error with a sentinel stays as it
// is.
func classify(err error) error {
	switch {
	case errors.Is(err, ErrNoSpace), errors.Is(err, ErrStale), errors.Is(err, ErrPermission):
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w: %w; free space or quota, or keep fewer checkpoints", ErrNoSpace, err)
	case errors.Is(err, syscall.ESTALE):
		return fmt.Errorf("%w: %w", ErrStale, err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w: %w", ErrPermission, err)
	}
	return err
}

// explain is deferred by exported methods: it puts what the caller asked for before the error, and classifies it.
func explain(err *error, format string, args ...any) {
	if *err != nil {
		*err = fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), classify(*err))
	}
}
