package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"ddpbatch/internal/vfs"
)

// ErrExposed: another user owns, or can replace, what a command is about to run or to change. It is vfs.ErrExposed, too.
var ErrExposed error = exposed{}

type exposed struct{}

func (exposed) Error() string        { return "another user could decide what is run" }
func (exposed) Is(target error) bool { return target == vfs.ErrExposed }

// OpenOwn is Open for who acts on the run, and starts its program: see [Dir.CheckOwn].
func OpenOwn(path string) (*Dir, error) {
	d, err := Open(path)
	if err != nil {
		return nil, err
	}
	return d, d.CheckOwn()
}

// CheckOwn returns ErrExposed unless the run is the caller's (see [Dir.CheckOwner]), and nobody else can put another directory in its
// place.
func (d *Dir) CheckOwn() error {
	if err := d.CheckOwner(); err != nil {
		return err
	}
	return checkParent(filepath.Dir(d.Whole().path))
}

// CheckOwner returns ErrExposed unless directory, spec and program of the run, and its copy of the code where it has one, belong to the
// caller, and nobody else can write to them.
func (d *Dir) CheckOwner() error {
	r := d.Whole()
	code := filepath.Join(r.path, CodeName)
	for _, path := range []string{r.path, d.path, r.SpecPath(), r.Binary(), code} {
		info, err := os.Lstat(path)
		if path == code && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("look whose run it is: %w", err)
		}
		if err := checkUser(info, path); err != nil {
			return err
		}
		switch {
		case !info.IsDir() && !info.Mode().IsRegular():
			return fmt.Errorf("%w: %s is a link or a special file; start a new run", ErrExposed, path)
		case vfs.OthersWrite(info):
			return errWritable(path)
		}
	}
	return nil
}

func checkUser(info fs.FileInfo, path string) error {
	if uid := vfs.Owner(info); uid != os.Geteuid() {
		return fmt.Errorf("%w: %s belongs to user %d, and this is user %d; only the run's owner may do this", ErrExposed,
			path, uid, os.Geteuid())
	}
	return nil
}

// CheckCancel returns ErrExposed unless the run directory belongs to the caller, or the caller is root. A cancel starts nothing of the run,
// so that it is possible also where its program is gone or others can write to it.
func (d *Dir) CheckCancel() error {
	if os.Geteuid() == 0 {
		return nil
	}
	path := d.Whole().path
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("look whose run it is: %w", err)
	}
	return checkUser(info, path)
}

// IsOwn reports whether the run directory belongs to the caller.
func (d *Dir) IsOwn() bool { return d.Owner() == os.Geteuid() }

// Owner is the user id of the run directory's owner; -1 where it is not known.
func (d *Dir) Owner() int {
	info, err := os.Lstat(d.Whole().path)
	if err != nil {
		return -1
	}
	return vfs.Owner(info)
}

// ExposedAbove says which folder above the one that runs are in another user can change: "" where none is.
func (d *Dir) ExposedAbove() string { return vfs.ExposedAbove(filepath.Dir(d.Whole().path)) }

// checkLink returns ErrExposed where another user's link stands for what is not theirs: the caller's own run, say, but another than its
// name tells. What is not beside the link may be theirs when this looks, and lead elsewhere after that, by a folder on the way.
func checkLink(link fs.FileInfo, path, target string) error {
	info, err := os.Lstat(target)
	if err != nil || vfs.Trusted(link) {
		return err
	}
	if filepath.Dir(target) != filepath.Dir(path) {
		return fmt.Errorf("%w: %s is a link of user %d to what is not beside it; name the run directory itself",
			ErrExposed, path, vfs.Owner(link))
	}
	if vfs.Owner(info) == vfs.Owner(link) {
		return nil
	}
	return fmt.Errorf("%w: %s is a link of user %d to what belongs to user %d; name the run directory itself",
		ErrExposed, path, vfs.Owner(link), vfs.Owner(info))
}

// makeParent makes the folder that run directories are in, and what is missing above it, with mode 0755 whatever umask, setgid bit and
// default ACL ask for. One that is there must be such that nobody else can replace what is in it.
func makeParent(path string) error {
	err := os.Mkdir(path, 0o755)
	if errors.Is(err, fs.ErrNotExist) && path != filepath.Dir(path) {
		if err := makeParent(filepath.Dir(path)); err != nil && !errors.Is(err, ErrExposed) {
			return err // but one that is there already is merely warned of
		}
		err = os.Mkdir(path, 0o755)
	}
	switch {
	case errors.Is(err, fs.ErrExist):
		return checkParent(path)
	case err != nil:
		return err
	}
	// By descriptor: in a place that others write to, another folder may have the name by now.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && vfs.Owner(info) == os.Geteuid() {
		err = f.Chmod(0o755)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return checkParent(path)
}

// checkParent returns ErrExposed where another user can replace what is in the folder path: its owner can, and who may write to it, unless
// it has the sticky bit, by which only their owners remove and rename what is in it.
func checkParent(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return &fs.PathError{Op: "mkdir", Path: path, Err: syscall.ENOTDIR}
	case !vfs.Trusted(info):
		return fmt.Errorf("%w: %s belongs to user %d, who can replace the runs in it; set run_dir to a folder of your own",
			ErrExposed, path, vfs.Owner(info))
	case vfs.Replaceable(info):
		return errWritable(path)
	}
	return nil
}

func errWritable(path string) error {
	return fmt.Errorf("%w: others can write to %s; to end that: chmod go-w '%s'", ErrExposed, path, path)
}
