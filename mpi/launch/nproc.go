package launch

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ParseNproc reads torchrun's --nproc-per-node: a number, or gpu, cpu or auto.
func ParseNproc(text string) (Nproc, error) {
	switch text {
	case "gpu", "cpu", "auto":
		return Nproc{Word: text}, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxWorld {
		return Nproc{}, fmt.Errorf("%q is no number of workers: write a number from 1, gpu, cpu or auto", text)
	}
	return Nproc{Counts: []int{n}}, nil
}

// On is how many workers the node with the given index runs, from 1. The words are worked out
// here, on the node: "gpu" is one worker for each GPU that lookup's variables show, "cpu" one for each core
// that this process may use, and "auto" the first of these that there is.
func (n Nproc) On(node int, lookup func(string) (string, bool)) (int, error) {
	switch {
	case n.Word == "" && len(n.Counts) == 1:
		return n.Counts[0], nil
	case n.Word == "" && node < len(n.Counts):
		return n.Counts[node], nil
	case n.Word == "":
		return 0, fmt.Errorf("nproc_per_node lists %d nodes, and this is node %d, counted from 0", len(n.Counts), node)
	case n.Word == "cpu":
		return cores(), nil
	}
	if gpus := visibleGPUs(lookup); gpus > 0 {
		return gpus, nil
	}
	if n.Word == "auto" {
		return cores(), nil
	}
	return 0, errors.New(`one worker per GPU is asked for ("gpu"), and neither CUDA_VISIBLE_DEVICES nor SLURM_GPUS_ON_NODE shows one; ask Slurm for GPUs, or give a number`)
}

// visibleGPUs counts the entries of CUDA_VISIBLE_DEVICES, up to the first that is not valid, as CUDA does
// (CUDA C++ Programming Guide, environment variables); where it is not set, what Slurm gave this node.
func visibleGPUs(lookup func(string) (string, bool)) int {
	if list, ok := lookup("CUDA_VISIBLE_DEVICES"); ok {
		count := 0
		for id := range strings.SplitSeq(list, ",") {
			id = strings.TrimSpace(id)
			if id == "" || strings.HasPrefix(id, "-") || id == "NoDevFiles" {
				break
			}
			count++
		}
		return count
	}
	text, _ := lookup("SLURM_GPUS_ON_NODE")
	count, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return count
}
