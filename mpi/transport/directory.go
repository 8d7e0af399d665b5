package transport

import (
	"fmt"
	"net/netip"
	"strings"

	"ddpbatch/internal/auth"
)

// entry is what a rank publishes: where it listens, on which machine it is, and what those who dial it must know besides
// the run's secret. Whoever has not read the ticket in the Directory can neither pass for a rank nor stand between two.
type entry struct {
	addr, machine string
	ticket        auth.Secret
}

func (e entry) encode() []byte { return []byte(e.addr + " " + e.ticket.Hex() + " " + e.machine) }

func decodeEntry(value []byte) (_ netip.AddrPort, machine string, ticket auth.Secret, err error) {
	if len(value) > 256 {
		value = value[:256]
	}
	text, rest, _ := strings.Cut(string(value), " ")
	addr, err := netip.ParseAddrPort(text)
	if err != nil {
		return addr, "", ticket, fmt.Errorf("%q is not an address", text)
	}
	text, machine, _ = strings.Cut(rest, " ")
	if ticket, err = auth.ParseSecret(text); err != nil {
		return addr, "", ticket, fmt.Errorf("the ticket of %s: %w", addr, err)
	}
	return addr, machine, ticket, nil
}
