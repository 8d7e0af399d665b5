package launch

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	"ddpbatch/mpi/launch/reach"
)

// network is what AgentConfig.Interface allows of this machine's addresses.
type network struct {
	choice reach.Choice
	addrs  []netip.Addr // the likeliest first; none: it says nothing
}

// network reads what may be used here. Agents of one machine have loopback addresses, and a single one needs no other.
func (c AgentConfig) network() (network, error) {
	if c.Interface == "" || c.Count == 1 || c.onLoopback() {
		return network{}, nil
	}
	choice, err := reach.ParseInterface(c.Interface)
	if err != nil {
		return network{}, err
	}
	links, err := reach.Links()
	if err != nil {
		return network{}, fmt.Errorf("on %s: %w", c.Host, err)
	}
	addrs, err := choice.Addresses(links)
	if err != nil {
		return network{}, fmt.Errorf("on %s: %w", c.Host, err)
	}
	return network{choice: choice, addrs: addrs}, nil
}

// onLoopback tells whether agents meet on this machine alone.
func (c AgentConfig) onLoopback() bool { return c.OneMachine || isLoopback(c.MasterAddr) }

// oneNode tells whether all agents are on one node.
func (c AgentConfig) oneNode() bool {
	return c.Count == 1 || len(c.Local) > 0 && c.Local[0].Nodes == 1
}

// hosts are what agent 0 listens on, for the other agents and ddpbatch's own workers: what Interface allows, and otherwise all, since
// which one the others reach is theirs to find out.
func (n network) hosts(c AgentConfig) []string {
	switch {
	case c.Count == 1, c.Exchange != nil && c.oneNode():
		return []string{loopback}
	case isLoopback(c.MasterAddr):
		return []string{c.MasterAddr}
	case len(n.addrs) == 0:
		return []string{""}
	}
	var list []string
	for _, addr := range n.addrs {
		list = append(list, addr.String())
	}
	return list
}

// offered are the addresses of hosts as others know them.
func (n network) offered(c AgentConfig) ([]netip.Addr, error) {
	switch {
	case c.oneNode():
		return []netip.Addr{netip.MustParseAddr(loopback)}, nil
	case len(n.addrs) > 0:
		return n.addrs, nil
	}
	links, err := reach.Links()
	if err != nil {
		return nil, err
	}
	return n.choice.Addresses(links)
}

// own is the address of this machine that its workers use, where a connection to agent 0 has this one. It is another one, of which
// warn tells, where that network is not among those that Interface allows.
func (n network) own(local netip.Addr) (addr netip.Addr, warn string) {
	if len(n.addrs) == 0 || local.IsLoopback() {
		return local, ""
	}
	first := n.addrs[0]
	for _, allowed := range n.addrs {
		if allowed == local {
			return local, ""
		}
		if first.BitLen() != local.BitLen() && allowed.BitLen() == local.BitLen() {
			first = allowed
		}
	}
	return first, fmt.Sprintf("the way to agent 0 goes by %s, which the interface asked for does not allow; the workers use %s", local, first)
}

// socketVariables tell a foreign command's libraries which interface leads to the other nodes: that of the connection to the other
// agents. Gloo and TensorPipe would otherwise take the address that the host name has, on many machines a loopback one. NCCL, which
// knows fast networks by itself, is told only where there is nothing to choose or the user has chosen.
func (m *meeting) socketVariables(p Place) []variable {
	if m.cfg.Builtin || p.Nodes < 2 || m.cfg.OneMachine {
		return nil
	}
	addr, err := netip.ParseAddr(m.listen)
	if err != nil || addr.IsLoopback() {
		return nil
	}
	links, err := reach.Links()
	if err != nil {
		return nil // they choose for themselves
	}
	name := reach.NameOf(links, addr)
	if name == "" {
		return nil
	}
	list := []variable{text("GLOO_SOCKET_IFNAME", name), text("TP_SOCKET_IFNAME", name)}
	if len(m.network.addrs) > 0 || len(reach.Choice{}.Names(links)) == 1 {
		list = append(list, text("NCCL_SOCKET_IFNAME", "="+name)) // exactly this one
	}
	return list
}

// sameHost tells whether two names are of one machine, as far as names can say: "n1" and "n1.cluster" are.
func sameHost(a, b string) bool {
	label := func(name string) string {
		if _, err := netip.ParseAddr(name); err == nil {
			return name
		}
		first, _, _ := strings.Cut(name, ".")
		return cmp.Or(first, name)
	}
	return strings.EqualFold(label(a), label(b))
}
