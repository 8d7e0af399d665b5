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
	Root     fs.FS                                // its files, from / on
	SpaceOf  func(path string) (vfs.Space, error) // of the file system that path is on
	TakeFile func(folder string) error            // whether a file of a page can be written in a folder; it is removed
	Limits   Limits
}

// Limits are those of a process and its children, hard: unix.RLIM_INFINITY is none.
type Limits struct {
	OpenFiles, Processes, LockedMemory uint64
	Privileged                         bool // by CAP_IPC_LOCK and CAP_SYS_RESOURCE, as root has them: the last two do not count
}

// This is the machine that the process runs on. Limits that cannot be read are none.
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

// takeFile writes a page, as a full file system still makes empty files.
func takeFile(folder string) error {
	f, err := os.CreateTemp(folder, ".ddpbatch-check-*")
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, 4096))
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}
