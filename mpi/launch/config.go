package launch

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"ddpbatch/mpi/launch/device"
	"ddpbatch/mpi/launch/output"
	"ddpbatch/mpi/launch/reach"
	"ddpbatch/mpi/launch/rendezvous"
)

// Config is the [launch] table of a job.
type Config struct {
	NprocPerNode Nproc      `json:"nproc_per_node"`
	Command      []string   `json:"command,omitempty"` // empty: the built-in trainer
	Check        [][]string `json:"check,omitempty"`   // commands that must exit with 0 on a node before its workers are started
	Mode         string     `json:"mode"`              // "agent": one task a node | "task": one task a rank
	MaxRestarts  int        `json:"max_restarts"`
	MinNodes     int        `json:"min_nodes,omitempty"` // the fewest nodes to go on with after others are lost; 0: all
	Interface    string     `json:"interface,omitempty"` // see reach.ParseInterface; "": the one that routes to the peer
	// Ports are those that agents take, see ParsePorts; "": Slurm's SrunPortRange, or the default ranges.
	Ports string `json:"ports,omitempty"`
	// WarnSignal ("USR2" and the like) is sent before a stop to workers that have a handler for it.
	WarnSignal string `json:"warn_signal"`
	// Prefix begins the lines of a command's ranks, if there are several (output.Config); "": no prefix.
	Prefix     string        `json:"prefix"`
	Grace      time.Duration `json:"grace"`                 // between TERM and KILL
	Hang       time.Duration `json:"hang"`                  // after so long without a sign of life, workers count as hung; 0: never
	GPUs       string        `json:"gpus"`                  // what each worker sees: "auto" | "all" | "one"
	TorchStore *bool         `json:"torch_store,omitempty"` // serve PyTorch's store at MASTER_PORT; nil: if the command is Python
	// OnEnd runs on the first node when the run has ended and nothing follows by itself; empty: nothing runs.
	OnEnd []string `json:"on_end,omitempty"`
	// NUMA is torchrun's --numa-binding: "node" | "socket" | "exclusive" | "core-complex"; "": workers are not bound.
	NUMA string `json:"numa,omitempty"`

	MetricsDir    string `json:"metrics_dir,omitempty"`    // the folder where agent 0 writes the run's metrics; "": none
	MetricsListen string `json:"metrics_listen,omitempty"` // where it serves them, see ParseListen; "": nowhere
}

// defaultHang is longer than a large model takes to save, or to compile before its first step.
const defaultHang = 30 * time.Minute

// Nproc says how many workers each node runs: one number, a list with one
// number a node, or a word ("gpu", "cpu", "auto") that each node works out.
type Nproc struct {
	Counts []int  `json:"counts,omitempty"`
	Word   string `json:"word,omitempty"`
}

// DefaultConfig is the configuration of a job whose file has no [launch] table.
func DefaultConfig() Config {
	return Config{NprocPerNode: Nproc{Counts: []int{1}}, Mode: "agent", WarnSignal: "USR2", Prefix: output.DefaultPrefix,
		Grace: defaultGrace, Hang: defaultHang, GPUs: "auto"}
}

// Validate reports what is wrong with the keys of [launch]. Each error begins with its key.
func (c Config) Validate() error {
	var errs []error
	if _, err := reach.ParseInterface(c.Interface); err != nil {
		errs = append(errs, fmt.Errorf("interface: %w", err))
	}
	if c.Ports != "" {
		if _, err := ParsePorts(c.Ports); err != nil {
			errs = append(errs, fmt.Errorf("ports: %w", err))
		}
	}
	if err := output.ParsePrefix(c.Prefix); err != nil {
		errs = append(errs, fmt.Errorf("prefix: %w", err))
	}
	if _, err := ParseListen(c.MetricsListen); err != nil {
		errs = append(errs, fmt.Errorf("metrics_listen: %w", err))
	}
	return errors.Join(errs...)
}

// ParseListen reads where agent 0 listens: a port, which only this machine reaches, or an IP address with a port. Port 0 stands for any
// free port. "" stands for nowhere, and gives the zero value.
func ParseListen(text string) (netip.AddrPort, error) {
	if text == "" {
		return netip.AddrPort{}, nil
	}
	at, err := netip.ParseAddrPort(text)
	if port, notOne := strconv.ParseUint(strings.TrimPrefix(text, "localhost:"), 10, 16); notOne == nil {
		at, err = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(port)), nil
	}
	switch {
	case err != nil:
		return at, fmt.Errorf(`cannot listen at %q: write a port such as 9400, to be reached on the same node only, `+
			`or an IP address with a port, such as "0.0.0.0:9400" for all networks`, text)
	case at.Port() > 0 && at.Port() < lowestPort:
		return at, fmt.Errorf("%q has a port below %d, which only root may listen at", text, lowestPort)
	}
	return at, nil
}

// lowestPort is the lowest port that users other than root may listen at.
const lowestPort = 1024

// ParseNproc reads the value of torchrun's --nproc-per-node: a number, or gpu, cpu or auto.
func ParseNproc(text string) (Nproc, error) {
	switch text {
	case "gpu", "cpu", "auto":
		return Nproc{Word: text}, nil
	case "xpu":
		return Nproc{}, errors.New(`"xpu" asks for a worker for each of Intel's GPUs, which ddpbatch cannot count: write their number`)
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > rendezvous.MaxWorld {
		return Nproc{}, fmt.Errorf("%q is not a number of workers: write a number from 1, gpu, cpu or auto", text)
	}
	return Nproc{Counts: []int{n}}, nil
}

// On returns how many workers the node with the given index, which is this node, runs. It is at least 1. Far more workers than the
// node has cores for are an error. The words are worked out here, on the node: "gpu" is one worker for each GPU that lookup's
// variables show, or that the machine has if they show none; "cpu" is one for each core that this process may use; and "auto" is
// the first of these that exists. In a Slurm job that was given no GPUs, "auto" does not count the machine's.
func (n Nproc) On(node int, lookup func(string) (string, bool)) (int, error) {
	switch {
	case n.Word == "" && len(n.Counts) == 1:
		return checkCount(n.Counts[0])
	case n.Word == "" && node < len(n.Counts):
		return checkCount(n.Counts[node])
	case n.Word == "":
		return 0, fmt.Errorf("nproc_per_node lists %d nodes, and this is node %d, counted from 0", len(n.Counts), node)
	}
	machine, err := device.This()
	if err != nil {
		return 0, err
	}
	return n.onMachine(machine, lookup)
}

const (
	manyWorkers  = 1024 // of one node; up to so many are accepted on any machine
	manyEachCore = 16
)

// checkCount refuses a number of workers so large that the machine could hardly start them: it must be a typing error.
func checkCount(workers int) (int, error) {
	if workers <= manyWorkers {
		return workers, nil
	}
	machine, err := device.This()
	if err != nil {
		return 0, err
	}
	if most := max(manyWorkers, manyEachCore*machine.Cores()); workers > most {
		return 0, fmt.Errorf("%d workers on this node are too many for its %d cores (at most %d): write how many each node "+
			"runs, not the world size, or use more nodes",
			workers, machine.Cores(), most)
	}
	return workers, nil
}

func (n Nproc) onMachine(machine *device.Node, lookup func(string) (string, bool)) (int, error) {
	gpus, name := machine.GPUs(lookup)
	_, inJob := lookup("SLURM_JOB_ID")
	if _, given := lookup("SLURM_GPUS_ON_NODE"); inJob && !given && name == "" && n.Word == "auto" {
		gpus = nil
	}
	switch {
	case len(gpus) > 0 && n.Word != "cpu":
		return len(gpus), nil
	case n.Word != "gpu":
		return machine.Cores(), nil
	}
	return 0, errors.New(`one worker per GPU is asked for ("gpu"), and neither CUDA_VISIBLE_DEVICES, SLURM_GPUS_ON_NODE nor /dev/nvidia0 ` +
		`shows one; ask Slurm for GPUs, or give a number`)
}
