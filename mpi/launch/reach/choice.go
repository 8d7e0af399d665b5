package reach

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// Choice is which networks may be used. The zero Choice allows all.
type Choice struct {
	text  string
	not   bool // none of the rules may match; otherwise one must
	rules []rule
}

// rule matches an interface by its name or an address by its network.
type rule struct {
	name    string // the prefix of the interface's name, or all of it if exact
	exact   bool
	network netip.Prefix // if valid, the rule is this network instead
}

// ParseInterface parses launch.interface: names of interfaces or networks, separated by commas, as in NCCL_SOCKET_IFNAME. "ib" is
// every interface whose name begins with it, "=ib0" is that interface, "10.1.0.0/16" is every address in that network, and
// "^docker,veth" is everything else than those.
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
			return rule{}, fmt.Errorf("%.60q is not a network: write one as 10.1.0.0/16", word)
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

// allows reports whether an address of an interface may be used.
func (c Choice) allows(iface string, addr netip.Addr) bool {
	matches := slices.ContainsFunc(c.rules, func(r rule) bool { return r.matches(iface, addr) })
	return len(c.rules) == 0 || matches != c.not
}

// local are prefixes of the names of interfaces that lead to containers and virtual machines on this machine: every node has them,
// often with the same address. They are offered only if the user names them.
var local = []string{"docker", "veth", "virbr", "br-", "cni", "flannel", "lxc", "podman"}

// Addresses lists the addresses of the interfaces that the choice allows, the likeliest first: IPv4 before IPv6, then in the order
// of the interfaces. It leaves out loopback interfaces, interfaces that are down, and addresses that have no meaning on another
// machine. An error lists the addresses that exist.
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

// Forbids reports whether the choice certainly excludes an address of another machine. The name of that address's interface is not
// known here, and a single address in the choice is this machine's own. So only networks decide about other machines.
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
	return fmt.Errorf("no network address %s; it has %s", what, strings.Join(there, ", "))
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

// NameOf is the name of the interface that has an address, or "" if none has.
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
