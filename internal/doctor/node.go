package doctor

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/text"
	"ddpbatch/mpi/launch/device"
	"ddpbatch/mpi/launch/health"
	"ddpbatch/mpi/launch/reach"
	"ddpbatch/mpi/transport/ucx"
)

// Node is what was found on one node of a job. A value that could not be found is empty or 0; a limit is -1 if there is none.
type Node struct {
	Host    string `json:"host"`
	Version string `json:"version"` // of ddpbatch
	Kernel  string `json:"kernel"`
	Cores   int    `json:"cores"` // how many cores the task may run on

	Memory     uint64 `json:"memory"`      // bytes
	MemoryFree uint64 `json:"memory_free"` // bytes that are available without swapping

	OpenFiles    int64 `json:"open_files"`    // hard limits; -1: none
	Processes    int64 `json:"processes"`     //
	LockedMemory int64 `json:"locked_memory"` // bytes

	Shm    Disk `json:"shm"`
	Temp   Disk `json:"temp"`
	Folder Disk `json:"folder"` // the folder in which the command was called

	FolderShared bool `json:"folder_shared"` // it is the same folder that the first node sees by that path

	ClockAheadS float64 `json:"clock_ahead_s"` // how far its clock is ahead of the first node's, in seconds
	Clock       string  `json:"clock"`         // "synchronised" or "free", according to the kernel

	GPUs     []GPU    `json:"gpus"`
	GPUError []string `json:"gpu_error,omitempty"` // what nvidia-smi prints about GPUs that do not answer
	Networks []string `json:"networks"`            // "eth0 25 Gbit/s MTU 9000"
	RDMA     []string `json:"rdma"`

	Unresolved []string         `json:"unresolved,omitempty"` // names of other nodes that do not resolve, each with the reason
	Problems   []health.Problem `json:"problems,omitempty"`
}

// Disk describes the space in a folder, in bytes.
type Disk struct {
	Path  string `json:"path"`
	Type  string `json:"type"` // "ext4", "nfs"
	Free  uint64 `json:"free"`
	Total uint64 `json:"total"`
	Error string `json:"error,omitempty"` // why a file cannot be written there; empty: it can
}

// Task is the process that checks a node.
type Task struct {
	Host      string
	Version   string
	Folder    string   // the folder in which the command was called
	Names     []string // the names of all nodes, which should resolve on each of them; nil: the nodes are simulated
	NvidiaSMI string   // the path of nvidia-smi; empty: there is none
	Environ   []string
	Lookup    func(name string) (string, bool)
	Root      fs.FS // the machine's files
}

// Node checks the machine.
func (t Task) Node(ctx context.Context) Node {
	machine := health.This()
	n := Node{
		Host: t.Host, Version: t.Version, Kernel: kernel(), Clock: clockState(),
		OpenFiles: limit(machine.Limits.OpenFiles), Processes: limit(machine.Limits.Processes),
		LockedMemory: limit(machine.Limits.LockedMemory),
		Networks:     t.networks(), GPUs: []GPU{}, RDMA: []string{},
	}
	if own, err := device.This(); err == nil {
		n.Cores = own.Cores()
	}
	if file, err := fs.ReadFile(t.Root, "proc/meminfo"); err == nil {
		n.Memory, n.MemoryFree = parseMemory(string(file))
	}
	temp, _ := t.Lookup("TMPDIR")
	if temp == "" {
		temp = "/tmp"
	}
	n.Shm, n.Temp, n.Folder = diskOf(machine, "/dev/shm"), diskOf(machine, temp), diskOf(machine, t.Folder)
	if cards, err := ucx.Devices(t.Root); err == nil {
		for _, card := range cards {
			n.RDMA = append(n.RDMA, card.String())
		}
	}
	n.Problems = machine.Check(health.Request{Workers: 1, Lookup: t.Lookup})
	var both sync.WaitGroup
	both.Go(func() { n.GPUs, n.GPUError = listGPUs(ctx, t.NvidiaSMI, t.Environ) })
	both.Go(func() { n.Unresolved = t.unresolved(ctx) })
	both.Wait()
	return n
}

func kernel() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

// clockState returns what the kernel says about the clock (adjtimex(2)). It is "free" if the program that sets the clock does not tell the
// kernel that it is synchronized.
func clockState() string {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	switch {
	case err != nil:
		return ""
	case state == unix.TIME_ERROR:
		return "free"
	}
	return "synchronised"
}

func limit(n uint64) int64 {
	if n == unix.RLIM_INFINITY || n > 1<<62 {
		return -1
	}
	return int64(n)
}

func diskOf(m *health.Machine, folder string) Disk {
	d := Disk{Path: folder}
	space, err := m.SpaceOf(folder)
	if err == nil {
		d.Type, d.Free, d.Total = space.Type, space.Free, space.Total
		err = m.TakeFile(folder)
	}
	if err != nil {
		d.Error = text.Shortened(err.Error(), 200)
	}
	return d
}

// parseMemory returns MemTotal and MemAvailable of /proc/meminfo (proc(5)), in bytes.
func parseMemory(file string) (total, free uint64) {
	for line := range strings.Lines(file) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		kibibytes, err := strconv.ParseUint(fields[1], 10, 53)
		switch {
		case err != nil:
		case fields[0] == "MemTotal:":
			total = kibibytes << 10
		case fields[0] == "MemAvailable:":
			free = kibibytes << 10
		}
	}
	return total, free
}

// networks returns the network interfaces by which other nodes can be reached, with their speed if the card reports it (sysfs-class-net).
func (t Task) networks() []string {
	list := []string{}
	interfaces, err := reach.Interfaces()
	if err != nil {
		return list
	}
	for _, name := range (reach.Choice{}).Names(interfaces) {
		words := []string{name}
		if file, err := fs.ReadFile(t.Root, "sys/class/net/"+name+"/speed"); err == nil {
			if speed := speedText(strings.TrimSpace(string(file))); speed != "" {
				words = append(words, speed)
			}
		}
		if file, err := fs.ReadFile(t.Root, "sys/class/net/"+name+"/mtu"); err == nil {
			words = append(words, "MTU "+text.Clean(strings.TrimSpace(string(file))))
		}
		list = append(list, strings.Join(words, " "))
	}
	return list
}

// speedText formats a number of Mbit/s. It returns "" if the card does not report a speed (-1 for virtual cards, or nothing).
func speedText(megabits string) string {
	n, err := strconv.Atoi(megabits)
	switch {
	case err != nil || n <= 0:
		return ""
	case n < 1000:
		return fmt.Sprintf("%d Mbit/s", n)
	}
	return fmt.Sprintf("%g Gbit/s", float64(n)/1000)
}

const (
	nameLimit = 5 * time.Second // for all names together
	maxNames  = 256
)

// unresolved returns the names of nodes that do not resolve here, or that resolve to this machine itself.
func (t Task) unresolved(ctx context.Context) (list []string) {
	ctx, cancel := context.WithTimeout(ctx, nameLimit)
	defer cancel()
	var mu sync.Mutex
	var all sync.WaitGroup
	slots := make(chan struct{}, 16)
	for _, name := range t.Names[:min(len(t.Names), maxNames)] {
		if name == t.Host {
			continue
		}
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
			why := ""
			switch {
			case ctx.Err() != nil:
				why = fmt.Sprintf("no answer within %v", nameLimit)
			case err != nil:
				why = text.Shortened(err.Error(), 120)
			case len(addrs) > 0 && addrs[0].Unmap().IsLoopback():
				why = addrs[0].Unmap().String() + " is this node itself"
			default:
				return
			}
			mu.Lock()
			defer mu.Unlock()
			list = append(list, name+": "+why)
		})
	}
	all.Wait()
	slices.Sort(list)
	return list
}
