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

// ErrExposed means that another user owns, or can replace, what a command is about to run or to change. It matches vfs.ErrExposed too.
var ErrExposed error = exposed{}

type exposed struct{}

func (exposed) Error() string        { return "another user could decide what is run" }
func (exposed) Is(target error) bool { return target == vfs.ErrExposed }

// OpenOwn is Open for commands that act on the run and start its program: see [Dir.CheckOwn].
func OpenOwn(path string) (*Dir, error) {
	d, err := Open(path)
	if err != nil {
		return nil, err
	}
	return d, d.CheckOwn()
}

// CheckOwn returns ErrExposed unless the run is the caller's (see [Dir.CheckOwner]) and nobody else can replace its directory by another.
func (d *Dir) CheckOwn() error {
	if err := d.CheckOwner(); err != nil {
		return err
	}
	return checkParent(filepath.Dir(d.Whole().path))
}

// CheckOwner returns ErrExposed unless the run's directory, spec and program, and its copy of the code if it has one, belong to the caller,
// and nobody else can write to them.
func (d *Dir) CheckOwner() error {
	r := d.Whole()
	code := filepath.Join(r.path, CodeName)
	for _, path := range []string{r.path, d.path, r.SpecPath(), r.Binary(), code} {
		info, err := os.Lstat(path)
		if path == code && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read the owner of the run: %w", err)
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
		return fmt.Errorf("%w: %s belongs to user %d, and this command runs as user %d; only the run's owner may do this", ErrExposed,
			path, uid, os.Geteuid())
	}
	return nil
}

// CheckCancel returns ErrExposed unless the run directory belongs to the caller, or the caller is root. A cancel does not start the run's
// program, so it is possible even if that is gone or others can write to it.
func (d *Dir) CheckCancel() error {
	if os.Geteuid() == 0 {
		return nil
	}
	path := d.Whole().path
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("read the owner of the run: %w", err)
	}
	return checkUser(info, path)
}

// IsOwn reports whether the run directory belongs to the caller.
func (d *Dir) IsOwn() bool { return d.Owner() == os.Geteuid() }

// Owner returns the user ID of the run directory's owner, or -1 if it is not known.
func (d *Dir) Owner() int {
	info, err := os.Lstat(d.Whole().path)
	if err != nil {
		return -1
	}
	return vfs.Owner(info)
}

// ExposedAbove returns a directory above the one that holds the runs that another user can change, or "" if there is none.
func (d *Dir) ExposedAbove() string { return vfs.ExposedAbove(filepath.Dir(d.Whole().path)) }

// checkLink returns ErrExposed if another user's link points to something that is not that user's, for example to a run of the caller other
// than its name says. It also refuses a target that is not next to the link: it might be the user's now, and point elsewhere after this
// check, by a directory on the way.
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

// makeParent creates the directory that holds run directories, and missing directories above it, with mode 0755 regardless of umask, setgid
// bit and default ACL. An existing one must not let others replace what is in it.
func makeParent(path string) error {
	err := os.Mkdir(path, 0o755)
	if errors.Is(err, fs.ErrNotExist) && path != filepath.Dir(path) {
		if err := makeParent(filepath.Dir(path)); err != nil && !errors.Is(err, ErrExposed) {
			return err // for an existing directory above it there is only a warning
		}
		err = os.Mkdir(path, 0o755)
	}
	switch {
	case errors.Is(err, fs.ErrExist):
		return checkParent(path)
	case err != nil:
		return err
	}
	// By descriptor: where others can write, another directory may have the name by now.
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

// checkParent returns ErrExposed if another user can replace entries of the directory path. Its owner can, and so can others who may write
// to it, unless it has the sticky bit, with which only the owners of entries may remove and rename them.
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
