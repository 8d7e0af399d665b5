package reach

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// Choice is which networks may be used. The zero Choice is all of them.
type Choice struct {
	text  string
	not   bool // none of the rules may match; else one must
	rules []rule
}

// rule matches an interface by its name or an address by its network.
type rule struct {
	name    string // beginning of the interface's name, all of it where exact
	exact   bool
	network netip.Prefix // valid: the rule is this instead
}

// ParseInterface reads launch.interface: names of interfaces or networks with commas between, as NCCL_SOCKET_IFNAME has them. "ib" is
// every interface whose name begins so, "=ib0" that one, "10.1.0.0/16" whatever has an address in it, and "^docker,veth" all but those.
func ParseInterface(text string) (Choice, error) {
	c := Choice{text: text}
	rest, not := strings.CutPrefix(text, "^")
	c.not = not
	if rest == "" && !not {
		return c, nil
	}
	rest, exact := strings.CutPrefix(rest, "=")
	for word := range strings.SplitSeq(rest, ",") {
		r, err := parseRule(strings.TrimSpace(word), exact)
		if err != nil {
			return Choice{}, fmt.Errorf("network interface %.80q: %w", text, err)
		}
		c.rules = append(c.rules, r)
	}
	return c, nil
}

func parseRule(word string, exact bool) (rule, error) {
	name, own := strings.CutPrefix(word, "=")
	exact = exact || own
	if strings.Contains(name, "/") {
		network, err := netip.ParsePrefix(name)
		if err != nil || exact {
			return rule{}, fmt.Errorf("%.60q is no network: write one as 10.1.0.0/16", word)
		}
		return rule{network: network.Masked()}, nil
	}
	if addr, err := netip.ParseAddr(name); err == nil {
		return rule{network: netip.PrefixFrom(addr.Unmap(), addr.Unmap().BitLen())}, nil
	}
	// IFNAMSIZ (netdevice(7)) counts a NUL
	if name == "" || len(name) > 15 || strings.ContainsAny(name, " ^=:\t\n") {
		return rule{}, fmt.Errorf("%.60q is neither an interface's name nor a network: write ib0, =ib0, 10.1.0.0/16, or ^docker0", word)
	}
	return rule{name: name, exact: exact}, nil
}

func (r rule) matches(iface string, addr netip.Addr) bool {
	switch {
	case r.network.IsValid():
		return r.network.Contains(addr)
	case r.exact:
		return iface == r.name
	}
	return strings.HasPrefix(iface, r.name)
}

// allows tells whether an address of an interface may be used.
func (c Choice) allows(iface string, addr netip.Addr) bool {
	matches := slices.ContainsFunc(c.rules, func(r rule) bool { return r.matches(iface, addr) })
	return len(c.rules) == 0 || matches != c.not
}

// local are the beginnings of names of interfaces that lead to containers and virtual machines on this very machine: every node has
// them, often with the same address. They are offered only where the user names them.
var local = []string{"docker", "veth", "virbr", "br-", "cni", "flannel", "lxc", "podman"}

// Addresses lists the addresses of the interfaces that the choice allows, the likeliest first: IPv4 before IPv6, then in the order of the
// interfaces. Loopback, interfaces that are down, and addresses that mean nothing on another machine are left out. An error says what there
// is.
func (c Choice) Addresses(interfaces []Interface) ([]netip.Addr, error) {
	var found []netip.Addr
	for _, iface := range interfaces {
		found = append(found, c.addresses(iface)...)
	}
	if len(found) == 0 {
		return nil, c.nothing(interfaces)
	}
	slices.SortStableFunc(found, func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() })
	return found, nil
}

// Names lists the interfaces that have an address among Addresses.
func (c Choice) Names(interfaces []Interface) []string {
	var names []string
	for _, iface := range interfaces {
		if len(c.addresses(iface)) > 0 {
			names = append(names, iface.Name)
		}
	}
	return names
}

func (c Choice) addresses(iface Interface) (found []netip.Addr) {
	if !iface.Up || iface.Loopback || len(c.rules) == 0 && isLocal(iface.Name) {
		return nil
	}
	for _, prefix := range iface.Addrs {
		if addr := prefix.Addr(); addr.IsGlobalUnicast() && c.allows(iface.Name, addr) {
			found = append(found, addr)
		}
	}
	return found
}

// Forbids tells whether the choice excludes an address of another machine for certain. The name of its interface is not known here, and
// a single address in the choice is one of this machine's own; so only networks say something of others.
func (c Choice) Forbids(addr netip.Addr) bool {
	inside := func(r rule) bool { return r.network.Contains(addr.Unmap()) }
	if c.not {
		return slices.ContainsFunc(c.rules, inside)
	}
	network := func(r rule) bool { return r.network.IsValid() && !r.network.IsSingleIP() }
	for _, r := range c.rules {
		if !network(r) || inside(r) {
			return false
		}
	}
	return len(c.rules) > 0
}

func isLocal(name string) bool {
	return slices.ContainsFunc(local, func(begin string) bool { return strings.HasPrefix(name, begin) })
}

func (c Choice) nothing(interfaces []Interface) error {
	var there []string
	for _, iface := range interfaces {
		for _, prefix := range iface.Addrs {
			word := iface.Name + " " + prefix.String()
			if !iface.Up {
				word += " (down)"
			}
			there = append(there, word)
		}
	}
	what := "of this machine that others could reach"
	switch {
	case !c.not && len(c.rules) == 1 && c.rules[0].network.IsSingleIP():
		what = fmt.Sprintf("%s here, which --local-addr or interface asks for", c.text)
	case c.text != "":
		what = fmt.Sprintf("that %q (interface) allows", c.text)
	}
	return fmt.Errorf("there is no network address %s; it has %s", what, strings.Join(there, ", "))
}

// Interface is a network interface of this machine.
type Interface struct {
	Name     string
	Up       bool
	Loopback bool
	Addrs    []netip.Prefix // with the length of their network
}

// Interfaces lists this machine's network interfaces.
func Interfaces() ([]Interface, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list this machine's network interfaces: %w", err)
	}
	var interfaces []Interface
	for _, i := range all {
		iface := Interface{Name: i.Name, Up: i.Flags&net.FlagUp != 0, Loopback: i.Flags&net.FlagLoopback != 0}
		addrs, err := i.Addrs()
		if err != nil {
			continue // it went away meanwhile
		}
		for _, a := range addrs {
			if prefix, err := netip.ParsePrefix(a.String()); err == nil {
				iface.Addrs = append(iface.Addrs, netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()))
			}
		}
		interfaces = append(interfaces, iface)
	}
	return interfaces, nil
}

// NameOf is the name of the interface that has an address; "" where none has.
func NameOf(interfaces []Interface, addr netip.Addr) string {
	for _, iface := range interfaces {
		for _, own := range iface.Addrs {
			if own.Addr() == addr.Unmap().WithZone("") {
				return iface.Name
			}
		}
	}
	return ""
}
