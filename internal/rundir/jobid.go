package rundir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"ddpbatch/internal/vfs"
)

// jobID is a Slurm job id: 123, an array element 123_4, or a component of a
// heterogeneous job 123+0.
var jobID = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9]{1,20}([_+][0-9]{1,10})?$`) })

// IsJobID tells whether [Find] takes name for a job id.
func IsJobID(name string) bool { return jobID().MatchString(name) }

// ErrLink: the job id is recorded, and no link of that name leads to the run, so that it is found by its path alone.
var ErrLink = errors.New("the job has no link")

const maxJobID = 64 // bytes of the file jobid

// SetJobID records the newest job id and points runs/<name>-<jobid> at the run.
// A link of that name that ddpbatch made for another run (a rebuilt cluster
// counts from 1 again) is replaced; anything else of that name is left alone,
// and an [ErrLink] says so, with the id recorded all the same. An array element
// records its id and gets no link.
func (d *Dir) SetJobID(id string) error {
	if !jobID().MatchString(id) {
		return fmt.Errorf("record the job id: %q is not a Slurm job id", id)
	}
	if !d.IsOwn() { // root, who cancels it: the file would be root's
		return fmt.Errorf("record job id %s: %w: %s belongs to another user", id, ErrExposed, d.run().path)
	}
	if err := writeBytes(filepath.Join(d.path, jobIDName), 0o600, []byte(id+"\n")); err != nil {
		return fmt.Errorf("record job id %s: %w", id, err)
	}
	if d.root != nil {
		return nil
	}
	link := filepath.Join(filepath.Dir(d.path), d.Spec().Name+"-"+id)
	if err := pointAt(link, filepath.Base(d.path)); err != nil {
		return fmt.Errorf("link job id %s to its run: %w: %w", id, ErrLink, err)
	}
	return nil
}

// pointAt makes link a symbolic link to target, a run directory beside it. The
// link is made under another name and renamed, so that it is never absent.
func pointAt(link, target string) error {
	info, err := os.Lstat(link)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return err
	case info.Mode()&os.ModeSymlink == 0:
		return fmt.Errorf("%s is in the way and is not a link of ddpbatch's: move it", link)
	default:
		old, err := os.Readlink(link)
		if err != nil {
			return err
		}
		if old == target {
			return nil
		}
		if !runName().MatchString(old) {
			return fmt.Errorf("%s is in the way and points at %s, which is no run beside it: move it", link, old)
		}
	}
	temp := filepath.Join(filepath.Dir(link), ".link-"+target)
	if err := ignoreGone(os.Remove(temp)); err != nil {
		return err
	}
	if err := os.Symlink(target, temp); err != nil {
		return err
	}
	if err := os.Rename(temp, link); err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	return vfs.OS{}.SyncDir(filepath.Dir(link))
}

// JobID is the newest job id, "" where there is none yet.
func (d *Dir) JobID() (string, error) {
	path := filepath.Join(d.path, jobIDName)
	data, err := readFile(path, maxJobID)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the job id: %w", err)
	}
	id := strings.TrimSpace(string(data))
	if !jobID().MatchString(id) {
		return "", fmt.Errorf("read the job id: %s holds %q", path, id)
	}
	return id, nil
}

// SlurmLogPath is the file that job jobID's batch script writes to. What is not
// a job id (sbatch's pattern %j, say) is taken as it is, less any slash.
func (d *Dir) SlurmLogPath(jobID string) string {
	return filepath.Join(d.run().path, "slurm-"+strings.ReplaceAll(jobID, "/", "_")+".log")
}
