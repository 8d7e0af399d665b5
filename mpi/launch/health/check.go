package health

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/text"
)

// Request describes what is to run on the node.
type Request struct {
	Workers int                              // their number
	RDMA    bool                             // their messages must use RDMA
	OwnShm  bool                             // each has its own /dev/shm, in a container
	Lookup  func(name string) (string, bool) // looks up one of their variables
}

// Problem is a problem that a check has found.
type Problem struct {
	Check string `json:"check"` // "shm", "temp", "gpu", "limits"
	Text  string `json:"text"`  // what is wrong, why that matters, and what to do
	Fatal bool   `json:"fatal"` // no worker can run; otherwise only some programs cannot
}

// Check checks the machine, and returns the problems that it found, the worst first.
func (m *Machine) Check(r Request) []Problem {
	found := slices.Concat(m.shm(r), m.temp(r), m.gpus(r), m.limits(r))
	slices.SortStableFunc(found, func(a, b Problem) int {
		switch {
		case a.Fatal == b.Fatal:
			return 0
		case a.Fatal:
			return -1
		}
		return 1
	})
	return found
}

// leastShm is too little for any program's shared memory.
const leastShm = 64 << 10

// shm checks /dev/shm: a program that writes to memory which a full tmpfs cannot provide gets SIGBUS.
func (m *Machine) shm(r Request) []Problem {
	if r.OwnShm {
		return nil
	}
	const folder = "/dev/shm"
	space, err := m.SpaceOf(folder)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return []Problem{{"shm", "/dev/shm does not exist: PyTorch's data loaders and NCCL need it; have a tmpfs mounted there", false}}
	case err == nil && space.Free < leastShm:
		return []Problem{{"shm", fmt.Sprintf("/dev/shm is full (%s of %s are free), and programs that share memory die of SIGBUS: "+
			"remove what ended jobs have left there (ls -l /dev/shm)", text.Bytes(space.Free), text.Bytes(space.Total)), false}}
	}
	return nil
}

// temp checks the folders in which programs create temporary files, in the order of Python's tempfile: TMPDIR, /tmp, /var/tmp.
func (m *Machine) temp(r Request) []Problem {
	folders := []string{"/tmp", "/var/tmp"}
	if own, _ := r.Lookup("TMPDIR"); path.IsAbs(own) && path.Clean(own) != folders[0] {
		folders = append([]string{path.Clean(own)}, folders...)
	}
	var why []string
	for i, folder := range folders {
		err := m.TakeFile(folder)
		if err == nil && i == 0 {
			return nil
		}
		if err == nil {
			return []Problem{{"temp", fmt.Sprintf("cannot create a file in %s (%s): programs that do not go on to %s fail; "+
				"make room, or set TMPDIR", folders[0], why[0], folder), false}}
		}
		why = append(why, reason(err))
	}
	return []Problem{{"temp", fmt.Sprintf("cannot create a file in any folder for temporary files: %s; "+
		"make room, or set TMPDIR", joined(folders, why)), false}}
}

// reason is an error's text without the path.
func reason(err error) string {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err.Error()
	}
	return err.Error()
}

func joined(folders, why []string) string {
	var list []string
	for i, folder := range folders {
		list = append(list, folder+": "+why[i])
	}
	return strings.Join(list, ", ")
}

// gpus finds NVIDIA GPUs that Slurm has given to the job and that the machine has, but none of which has a device file, because the
// driver is not loaded. It ignores nodes on which some GPUs have one, as in a container or with MIG.
func (m *Machine) gpus(r Request) []Problem {
	given, _ := r.Lookup("SLURM_GPUS_ON_NODE")
	n, err := strconv.Atoi(given)
	if err != nil || n < 1 {
		return nil
	}
	devices, err := fs.Glob(m.Root, "dev/nvidia[0-9]*")
	if err != nil || len(devices) > 0 {
		return nil
	}
	cards := m.nvidiaCards()
	if cards == 0 {
		return nil // of another vendor, or simulated
	}
	return []Problem{{"gpu", fmt.Sprintf("Slurm gave this node's %s to the job, and the machine has %s, but /dev/nvidia0 does not exist: "+
		"NVIDIA's driver is not "+
		"loaded; nvidia-smi tells an administrator more", text.Plural(n, "GPU"), text.Plural(cards, "card")), true}}
}

// nvidiaCards counts the GPUs of NVIDIA's on the PCI bus (sysfs-bus-pci): display and 3D controllers, class 03.
func (m *Machine) nvidiaCards() (n int) {
	cards, _ := fs.Glob(m.Root, "sys/bus/pci/devices/*/vendor") // the pattern is valid
	for _, name := range cards {
		vendor, _ := fs.ReadFile(m.Root, name)
		class, _ := fs.ReadFile(m.Root, path.Dir(name)+"/class")
		if strings.TrimSpace(string(vendor)) == "0x10de" && strings.HasPrefix(string(class), "0x03") {
			n++
		}
	}
	return n
}

const (
	// These are the agent's own needs. ownFiles and workerFiles count open files: for each worker its two streams and their log
	// files, and some more. ownProcesses and workerProcesses count processes: the agent's threads, and each worker.
	ownFiles, workerFiles         = 64, 8
	ownProcesses, workerProcesses = 16, 2

	// leastLocked is Linux's default limit before 5.16. A card's queue and its buffers do not fit into it.
	leastLocked = 64 << 10
)

// limits finds limits that are too low even for the agent itself.
func (m *Machine) limits(r Request) (found []Problem) {
	add := func(format string, args ...any) {
		found = append(found, Problem{"limits", fmt.Sprintf(format, args...), true})
	}
	const remedy = "an administrator can raise it for jobs (slurmd's unit, /etc/security/limits.conf), and it may be your own limit " +
		"on the machine from " +
		"which you submitted (PropagateResourceLimits)"
	if need := uint64(ownFiles + workerFiles*r.Workers); m.Limits.OpenFiles < need {
		add("the limit of open files is %d, and with %s at least %d are needed (ulimit -Hn): %s", m.Limits.OpenFiles,
			text.Plural(r.Workers, "worker"), need, remedy)
	}
	if m.Limits.Privileged {
		return found
	}
	if need := uint64(ownProcesses + workerProcesses*r.Workers); m.Limits.Processes < need {
		add("the limit of processes is %d, and with %s at least %d are needed (ulimit -Hu): %s", m.Limits.Processes,
			text.Plural(r.Workers, "worker"), need, remedy)
	}
	if r.RDMA && m.Limits.LockedMemory != unix.RLIM_INFINITY && m.Limits.LockedMemory <= leastLocked {
		add(`the limit of locked memory is %s, and mpi.transport = "ucx" needs far more (ulimit -Hl): %s`,
			text.Bytes(m.Limits.LockedMemory),
			remedy)
	}
	return found
}
