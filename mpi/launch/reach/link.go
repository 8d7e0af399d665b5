package reach

import (
	"fmt"
	"net"
	"net/netip"
)

// Link is a network interface of this machine.
type Link struct {
	Name     string
	Up       bool
	Loopback bool
	Addrs    []netip.Prefix // with the length of their network
}

// Links lists this machine's network interfaces.
func Links() ([]Link, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list this machine's network interfaces: %w", err)
	}
	var links []Link
	for _, i := range interfaces {
		link := Link{Name: i.Name, Up: i.Flags&net.FlagUp != 0, Loopback: i.Flags&net.FlagLoopback != 0}
		addrs, err := i.Addrs()
		if err != nil {
			continue // it went away meanwhile
		}
		for _, a := range addrs {
			if prefix, err := netip.ParsePrefix(a.String()); err == nil {
				link.Addrs = append(link.Addrs, netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()))
			}
		}
		links = append(links, link)
	}
	return links, nil
}

// NameOf is the name of the interface that has an address; "" where none has.
func NameOf(links []Link, addr netip.Addr) string {
	for _, link := range links {
		for _, own := range link.Addrs {
			if own.Addr() == addr.Unmap().WithZone("") {
				return link.Name
			}
		}
	}
	return ""
}
