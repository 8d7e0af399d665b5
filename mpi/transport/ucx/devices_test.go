package ucx

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// card describes a card with one port in sysfs.
type card struct {
	name, node, driver, kind, layer, state, rate string
}

// edr is an InfiniBand card on a NUMA node.
func edr(name, node string) card {
	return card{name, node, "mlx5_core", "1: CA", "InfiniBand", "4: ACTIVE", "100 Gb/sec (4X EDR)"}
}

// machine returns the sysfs of a machine with two NUMA nodes of eight cores each. The cores alternate between the nodes.
func machine(cards ...card) fs.FS {
	root := fstest.MapFS{}
	for core := range 16 {
		root[fmt.Sprintf("sys/devices/system/node/node%d/cpu%d/online", core%2, core)] = &fstest.MapFile{}
	}
	for _, c := range cards {
		folder := "sys/class/infiniband/" + c.name
		for file, text := range map[string]string{
			"device/numa_node": c.node, "node_type": c.kind, "ports/1/link_layer": c.layer, "ports/1/state": c.state,
			"ports/1/rate": c.rate,
		} {
			root[folder+"/"+file] = &fstest.MapFile{Data: []byte(text + "\n")}
		}
		root[folder+"/device/driver"] = &fstest.MapFile{Data: []byte("../../../bus/pci/drivers/" + c.driver), Mode: fs.ModeSymlink}
	}
	return root
}

func TestActivePortsAreDevices(t *testing.T) {
	down, efa, opa, iwarp := edr("mlx5_1", "1"), edr("efa_0", "0"), edr("hfi1_0", "0"), edr("irdma0", "0")
	down.state = "1: DOWN"
	efa.driver, efa.kind = "efa", "7: unspecified"
	opa.driver = "hfi1"
	iwarp.driver, iwarp.kind = "irdma", "4: RNIC"
	slingshot := machine().(fstest.MapFS)
	slingshot["sys/class/cxi/cxi0/device/properties/link_state"] = &fstest.MapFile{}
	for name, c := range map[string]struct {
		root fs.FS
		want string // names, or part of the error
	}{
		"two":             {machine(edr("mlx5_0", "0"), edr("mlx5_1", "1")), "mlx5_0:1,mlx5_1:1"},
		"one of two":      {machine(edr("mlx5_0", "0"), down), "mlx5_0:1"},
		"without cables":  {machine(down), "mlx5_1:1 is not active (1: DOWN)"},
		"none":            {machine(), "no InfiniBand or RoCE device"},
		"EFA":             {machine(efa), "efa_0:1 is an Elastic Fabric Adapter"},
		"Omni-Path":       {machine(opa), "hfi1_0:1 is Omni-Path's"},
		"iWARP":           {machine(iwarp), "irdma0:1 is neither InfiniBand nor RoCE (node type 4: RNIC)"},
		"Slingshot":       {slingshot, "cxi0 is Slingshot's"},
		"EFA and another": {machine(efa, edr("mlx5_0", "0")), "mlx5_0:1"},
	} {
		devices, err := Devices(c.root)
		got := deviceNames(devices)
		if err != nil {
			got = err.Error()
		}
		if err == nil && got != c.want || err != nil && !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if errors.Is(err, ErrNoDevice) != (name == "none") {
			t.Errorf("%s: is it no device at all? %v", name, err)
		}
	}
}

func TestClosestDeviceIsChosen(t *testing.T) {
	slow := edr("mlx4_0", "0")
	slow.rate = "40 Gb/sec (4X QDR)"
	ethernet := edr("mlx5_9", "0")
	ethernet.layer, ethernet.rate = "Ethernet", "25 Gb/sec (1X EDR)"
	unknown := edr("mlx5_0", "-1")
	evens, all := []int{0, 2, 4, 6, 8, 10, 12, 14}, make([]int, 16)
	for core := range all {
		all[core] = core
	}
	two := []card{edr("mlx5_0", "0"), edr("mlx5_1", "1")}
	four := append(slices.Clone(two), edr("mlx5_2", "0"), edr("mlx5_3", "1"))
	for name, c := range map[string]struct {
		cards []card
		cores []int
		want  string
	}{
		"one":                             {two[:1], []int{1}, "mlx5_0:1"},
		"of its node":                     {two, []int{1, 3}, "mlx5_1:1"},
		"of its node, all of that":        {two, evens, "mlx5_0:1"},
		"of all nodes":                    {two, all, "mlx5_0:1,mlx5_1:1"},
		"two of its node, all of that":    {four, evens, "mlx5_0:1,mlx5_2:1"},
		"two of its node, its first part": {four, []int{0, 2}, "mlx5_0:1"},
		"two of its node, its last part":  {four, []int{12, 14}, "mlx5_2:1"},
		"the fastest, though far":         {[]card{slow, two[1]}, []int{0}, "mlx5_1:1"},
		"not Ethernet, though near":       {[]card{ethernet, two[1]}, []int{0}, "mlx5_1:1"},
		"where nobody knows":              {[]card{unknown, edr("mlx5_1", "-1")}, []int{0}, "mlx5_0:1,mlx5_1:1"},
	} {
		root := machine(c.cards...)
		devices, err := Devices(root)
		if err != nil {
			t.Fatal(err)
		}
		if got := deviceNames(Choose(devices, c.cores, root)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// The text is from ucx_info -e -u t, of UCX 1.13.1 on loopback.
func TestLanesAreReadFromUCXsWords(t *testing.T) {
	const text = `#
# UCP endpoint 
#
#               peer: <no debug data>
#                 lane[0]:  0:tcp/lo.0 md[0]                -> md[0]/tcp/sysdev[255] rma_bw#0 am am_bw#0 wireup
#
#                tag_send: 0..<egr/short>..8185..<egr/zcopy>..20553..<rndv>..(inf)
#            tag_send_nbr: 0..<egr/short>..8185..<egr/bcopy>..262144..<rndv>..(inf)
#           tag_send_sync: 0..<egr/short>..8185..<egr/zcopy>..20553..<rndv>..(inf)
#
#                  rma_bw: mds [0] rndv_rkey_size 10
#
`
	if got, want := lanes(text), "tcp/lo"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := lanes("# nothing\n"); got != "" {
		t.Errorf("%q where there are none", got)
	}
}
