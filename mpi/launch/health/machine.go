package health

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/vfs"
)

// Machine is a computer as its checks see it.
type Machine struct {
	Root     fs.FS                                // its files, below /
	SpaceOf  func(path string) (vfs.Space, error) // of the file system that path is on
	TakeFile func(folder string) error            // writes a file of one page to a folder and removes it
	Limits   Limits
}

// Limits are the hard limits of a process and its children. unix.RLIM_INFINITY means no limit.
type Limits struct {
	OpenFiles, Processes, LockedMemory uint64
	Privileged                         bool // has CAP_IPC_LOCK and CAP_SYS_RESOURCE, as root does: the last two limits do not apply
}

// This returns the machine that the process runs on. A limit that cannot be read counts as no limit.
func This() *Machine {
	return &Machine{Root: os.DirFS("/"), SpaceOf: vfs.OS{}.Space, TakeFile: takeFile, Limits: Limits{
		OpenFiles: hardLimit(unix.RLIMIT_NOFILE), Processes: hardLimit(unix.RLIMIT_NPROC), LockedMemory: hardLimit(unix.RLIMIT_MEMLOCK),
		Privileged: os.Geteuid() == 0,
	}}
}

func hardLimit(resource int) uint64 {
	var limit unix.Rlimit
	if unix.Getrlimit(resource, &limit) != nil {
		return unix.RLIM_INFINITY
	}
	return limit.Max
}

// takeFile writes a page, because a full file system can still create empty files.
func takeFile(folder string) error {
	f, err := os.CreateTemp(folder, ".ddpbatch-check-*")
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, 4096))
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}
