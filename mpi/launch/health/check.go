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

// Request is what is to run on the node.
type Request struct {
	Workers int                              // how many
	RDMA    bool                             // their messages must go by RDMA
	OwnShm  bool                             // each has a /dev/shm of its own, in a container
	Lookup  func(name string) (string, bool) // a variable of theirs
}

// Problem is something that a check has found.
type Problem struct {
	Check string `json:"check"` // "shm", "temp", "gpu", "limits"
	Text  string `json:"text"`  // what is wrong, why that matters, and what to do
	Fatal bool   `json:"fatal"` // the workers cannot run; else some programs cannot
}

// Check looks at the machine. It returns what it found, the worst first.
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

// leastShm is so little that no program's shared memory fits.
const leastShm = 64 << 10

// shm: whoever writes to memory that a full tmpfs cannot give gets SIGBUS.
func (m *Machine) shm(r Request) []Problem {
	if r.OwnShm {
		return nil
	}
	const folder = "/dev/shm"
	space, err := m.SpaceOf(folder)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return []Problem{{"shm", "/dev/shm is not there: PyTorch's data loaders and NCCL need it; have a tmpfs mounted there", false}}
	case err == nil && space.Free < leastShm:
		return []Problem{{"shm", fmt.Sprintf("/dev/shm is full (%s of %s are free), and programs that share memory die of SIGBUS: "+
			"remove what ended jobs have left there (ls -l /dev/shm)", text.Bytes(space.Free), text.Bytes(space.Total)), false}}
	}
	return nil
}

// temp looks where programs do, as Python's tempfile does: TMPDIR, /tmp, /var/tmp.
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
			return []Problem{{"temp", fmt.Sprintf("%s takes no file (%s): programs that do not go on to %s fail; make room, or set TMPDIR",
				folders[0], why[0], folder), false}}
		}
		why = append(why, reason(err))
	}
	return []Problem{{"temp", fmt.Sprintf("no folder for temporary files takes one: %s; make room, or set TMPDIR", joined(folders, why)),
		false}}
}

// reason is an error less the path that it is about.
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

// gpus: Slurm has given the node NVIDIA's GPUs, the machine has them, and none has a device file, as the driver is not loaded. Who sees
// some of them alone (a container, MIG) is left alone.
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
		return nil // of another make, or pretended
	}
	return []Problem{{"gpu", fmt.Sprintf("Slurm gave this node's %s to the job, and there is no /dev/nvidia0, though the machine has %s: "+
		"NVIDIA's driver is not "+
		"loaded; nvidia-smi tells more to an administrator", text.Plural(n, "GPU"), text.Plural(cards, "card")), true}}
}

// nvidiaCards counts the GPUs of NVIDIA's on the PCI bus (sysfs-bus-pci): display and 3D controllers, class 03.
func (m *Machine) nvidiaCards() (n int) {
	cards, _ := fs.Glob(m.Root, "sys/bus/pci/devices/*/vendor") // its pattern is right
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
	// What an agent needs itself: of files for each worker its two streams and their files, and some more; of processes its own threads,
	// and of each worker one.
	ownFiles, workerFiles         = 64, 8
	ownProcesses, workerProcesses = 16, 2

	// leastLocked is the limit that Linux had before 5.16, which no queue of a card fits into together with its buffers.
	leastLocked = 64 << 10
)

// limits are low where not even the agent gets by.
func (m *Machine) limits(r Request) (found []Problem) {
	add := func(format string, args ...any) {
		found = append(found, Problem{"limits", fmt.Sprintf(format, args...), true})
	}
	const remedy = "an administrator can raise it for jobs (slurmd's unit, /etc/security/limits.conf), and yours " +
		"may have come along from " +
		"where you submitted (PropagateResourceLimits)"
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
