package ucx

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Device is an active port of a network card with verbs.
type Device struct {
	Name string  // as UCX names it: mlx5_0:1
	Kind string  // its link layer: InfiniBand, or Ethernet (RoCE)
	Rate float64 // Gbit/s; 0: not known
	node int     // NUMA node; -1: not known
}

func (d Device) String() string { return fmt.Sprintf("%s (%s, %g Gbit/s)", d.Name, d.Kind, d.Rate) }

// Devices lists the active ports that UCX's verbs support, by name, on the machine whose files are below root. If there is none,
// the error says why (sysfs-class-infiniband).
func Devices(root fs.FS) ([]Device, error) {
	ports, _ := fs.Glob(root, "sys/class/infiniband/*/ports/*") // the pattern is valid
	var devices []Device
	var others []string
	for _, port := range ports {
		card := path.Dir(path.Dir(port))
		d := Device{Name: path.Base(card) + ":" + path.Base(port), Kind: read(root, port+"/link_layer"), node: -1}
		why := unsuitable(root, card)
		if state := read(root, port+"/state"); why == "" && !strings.HasSuffix(state, " ACTIVE") { // "4: ACTIVE"
			why = "is not active (" + state + ")"
		}
		if why != "" {
			others = append(others, d.Name+" "+why)
			continue
		}
		if text, _, found := strings.Cut(read(root, port+"/rate"), " "); found { // "100 Gb/sec (4X EDR)"
			d.Rate, _ = strconv.ParseFloat(text, 64)
		}
		if n, err := strconv.Atoi(read(root, card+"/device/numa_node")); err == nil {
			d.node = n
		}
		devices = append(devices, d)
	}
	slingshot, _ := fs.Glob(root, "sys/class/cxi/*")
	for _, card := range slingshot {
		others = append(others, path.Base(card)+" is Slingshot's, which does not support verbs")
	}
	switch {
	case len(devices) > 0:
		return devices, nil
	case len(others) > 0:
		return nil, errors.New(strings.Join(others, ", "))
	}
	return nil, ErrNoDevice
}

// ErrNoDevice means that the machine has no card of a fast network.
var ErrNoDevice = errors.New("no InfiniBand or RoCE device")

// unsuitable returns why UCX's verbs do not support a card, or "" if they do.
func unsuitable(root fs.FS, card string) string {
	driver, _ := fs.ReadLink(root, card+"/device/driver")
	switch kind := read(root, card+"/node_type"); {
	case path.Base(driver) == "efa":
		return "is an Elastic Fabric Adapter, whose verbs have no connections"
	case path.Base(driver) == "hfi1":
		return "is Omni-Path's, whose verbs run on the host and are not faster than TCP"
	case !strings.HasSuffix(kind, " CA"): // "1: CA", a channel adapter; "4: RNIC" has iWARP
		return "is neither InfiniBand nor RoCE (node type " + kind + ")"
	}
	return ""
}

// read returns the text of a file of one line, or "" if it cannot be read.
func read(root fs.FS, name string) string {
	text, _ := fs.ReadFile(root, name)
	return strings.TrimSpace(string(text))
}

// Choose picks the devices of a rank that runs on the given cores: of those with the highest rate, the ones of its NUMA nodes, or
// all if there are none. If the rank has only a part of a node's cores, other ranks have the rest. Then each rank gets one device,
// in turn.
func Choose(devices []Device, cores []int, root fs.FS) []Device {
	fastest := slices.MaxFunc(devices, func(a, b Device) int { return cmp.Compare(a.Rate, b.Rate) })
	devices = slices.DeleteFunc(slices.Clone(devices), func(d Device) bool { return d.Rate < fastest.Rate || d.Kind != fastest.Kind })
	var own []Device
	first, all := 0, 0 // position in, and number of, the cores of the rank's node
	for _, node := range nodes(devices) {
		there := coresOf(root, node)
		part := slices.DeleteFunc(slices.Clone(there), func(core int) bool { return !slices.Contains(cores, core) })
		if len(part) == 0 {
			continue
		}
		for _, d := range devices {
			if d.node == node {
				own = append(own, d)
			}
		}
		if len(part) < len(there) && all == 0 {
			first, all = slices.Index(there, part[0]), len(there)
		}
	}
	switch {
	case len(own) == 0:
		return devices
	case all == 0 || len(own) == 1:
		return own
	}
	i := first * len(own) / all
	return own[i : i+1]
}

// nodes lists the NUMA nodes of devices, each once.
func nodes(devices []Device) []int {
	var all []int
	for _, d := range devices {
		if d.node >= 0 && !slices.Contains(all, d.node) {
			all = append(all, d.node)
		}
	}
	return all
}

// coresOf lists the cores of a NUMA node in order (sysfs-devices-system-node).
func coresOf(root fs.FS, node int) []int {
	links, _ := fs.Glob(root, fmt.Sprintf("sys/devices/system/node/node%d/cpu[0-9]*", node))
	var cores []int
	for _, link := range links {
		if n, err := strconv.Atoi(strings.TrimPrefix(path.Base(link), "cpu")); err == nil {
			cores = append(cores, n)
		}
	}
	slices.Sort(cores)
	return cores
}

// deviceNames is UCX's list of devices.
func deviceNames(devices []Device) string {
	var names []string
	for _, d := range devices {
		names = append(names, d.Name)
	}
	return strings.Join(names, ",")
}

// lane matches what UCX prints of one of an endpoint's lanes: "lane[0]: 3:rc_mlx5/mlx5_0:1.0 md[4] -> ...". The number after the
// port is the index of a path.
var lane = regexp.MustCompile(`lane\[\d+\]:\s+\d+:(\S+?)(\.\d+)? `)

// lanes lists the transports and devices of an endpoint, each once.
func lanes(text string) string {
	var all []string
	for _, m := range lane.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(all, m[1]) {
			all = append(all, m[1])
		}
	}
	return strings.Join(all, ", ")
}
