package transport

import (
	"fmt"
	"net/netip"
	"strings"
)

// entry is what a rank publishes: where it listens, and on which machine it is.
type entry struct{ addr, machine string }

func (e entry) encode() []byte { return []byte(e.addr + " " + e.machine) }

func decodeEntry(value []byte) (netip.AddrPort, string, error) {
	if len(value) > 256 {
		value = value[:256]
	}
	text, machine, _ := strings.Cut(string(value), " ")
	addr, err := netip.ParseAddrPort(text)
	if err != nil {
		return addr, "", fmt.Errorf("%q is no address", value)
	}
	return addr, machine, nil
}
