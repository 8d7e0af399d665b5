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
	MinNodes     int        `json:"min_nodes,omitempty"` // the fewest nodes to go on with where others are lost; 0: all
	Interface    string     `json:"interface,omitempty"` // see reach.ParseInterface; "": the one that routes to the peer
	// that agents take, see ParsePorts; "": Slurm's SrunPortRange, or the usual ones
	Ports string `json:"ports,omitempty"`
	// "USR2" and the like: forwarded before a stop, to workers that have a handler
	WarnSignal string `json:"warn_signal"`
	// of the lines of a command's ranks, where there are several (output.Config); "": none
	Prefix     string        `json:"prefix"`
	Grace      time.Duration `json:"grace"`                 // between TERM and KILL
	Hang       time.Duration `json:"hang"`                  // workers without a sign of life for so long hang; 0: never
	GPUs       string        `json:"gpus"`                  // what each worker sees: "auto" | "all" | "one"
	TorchStore *bool         `json:"torch_store,omitempty"` // serve PyTorch's store at MASTER_PORT; nil: where the command is Python
	// run on the first node when nothing follows the run's end by itself; empty: none
	OnEnd []string `json:"on_end,omitempty"`
	// torchrun's --numa-binding: "node" | "socket" | "exclusive" | "core-complex"; "": none
	NUMA string `json:"numa,omitempty"`

	MetricsDir    string `json:"metrics_dir,omitempty"`    // a folder, where agent 0 writes how the run gets on; "": none
	MetricsListen string `json:"metrics_listen,omitempty"` // where it answers who asks for that, see ParseListen; "": nowhere
}

// defaultHang is longer than a save of a large model, or the compilation before its first step, takes.
const defaultHang = 30 * time.Minute

// Nproc says how many workers each node runs: one number, a list with one
// number a node, or a word ("gpu", "cpu", "auto") that each node works out.
type Nproc struct {
	Counts []int  `json:"counts,omitempty"`
	Word   string `json:"word,omitempty"`
}

// DefaultConfig is what a job gets that says nothing.
func DefaultConfig() Config {
	return Config{NprocPerNode: Nproc{Counts: []int{1}}, Mode: "agent", WarnSignal: "USR2", Prefix: output.DefaultPrefix,
		Grace: defaultGrace, Hang: defaultHang, GPUs: "auto"}
}

// Validate says what is wrong with the keys of [launch], each error beginning with its key.
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

// ParseListen reads where agent 0 listens: a port of this machine alone, or an IP address with a port. 0 stands for any port that is free,
// and "" for nowhere, which is the zero value.
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
		return at, fmt.Errorf(`%q is no place to listen at: write a port, 9400, for who asks on the same node, or an IP address with one, `+
			`"0.0.0.0:9400" for all networks`, text)
	case at.Port() > 0 && at.Port() < lowestPort:
		return at, fmt.Errorf("%q has a port below %d, which only root may listen at", text, lowestPort)
	}
	return at, nil
}

// lowestPort is the first that users may listen at.
const lowestPort = 1024

// ParseNproc reads torchrun's --nproc-per-node: a number, or gpu, cpu or auto.
func ParseNproc(text string) (Nproc, error) {
	switch text {
	case "gpu", "cpu", "auto":
		return Nproc{Word: text}, nil
	case "xpu":
		return Nproc{}, errors.New(`"xpu" asks for a worker for each of Intel's GPUs, which ddpbatch cannot count: write their number`)
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > rendezvous.MaxWorld {
		return Nproc{}, fmt.Errorf("%q is no number of workers: write a number from 1, gpu, cpu or auto", text)
	}
	return Nproc{Counts: []int{n}}, nil
}

// On is how many workers the node with the given index, which is this one, runs, from 1; far more than it has cores for are an error. The
// words are worked out here, on the node: "gpu" is one worker for each GPU that lookup's variables show, or else that the machine has,
// "cpu" one for each core that this process may use, and "auto" the first of these that there is; in a job of Slurm's, GPUs that it did not
// give are none.
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
	manyWorkers  = 1024 // of one node; as many are taken for meant, whatever the machine
	manyEachCore = 16
)

// checkCount refuses so many workers that the machine would be busy with their start alone: a slip of the pen.
func checkCount(workers int) (int, error) {
	if workers <= manyWorkers {
		return workers, nil
	}
	machine, err := device.This()
	if err != nil {
		return 0, err
	}
	if most := max(manyWorkers, manyEachCore*machine.Cores()); workers > most {
		return 0, fmt.Errorf("%d workers on this node are more than it can do with (%d cores; at most %d): write how many each node "+
			"runs, not the whole world, or use more nodes",
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
	return 0, errors.New(`one worker per GPU is asked for ("gpu"), and neither CUDA_VISIBLE_DEVICES, SLURM_GPUS_ON_NODE nor /dev/nvidia0 shows one; ask Slurm for GPUs, or give a number`)
}
