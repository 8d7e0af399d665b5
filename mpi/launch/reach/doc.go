// Package reach finds the way from one agent to another: which of a machine's addresses to offer, which of the offered addresses
// leads there, and, if none does, who tried what.
//
//	choice, err := reach.ParseInterface("ib0")
//	offer, err := choice.Addresses(interfaces)                         // agent 0
//	addr, err := reach.NewRace(addrs, reach.HeadStart).Run(ctx, prove) // every other agent
//
// An address counts only once the process that answers there has proved that it is agent 0: a name may resolve to this machine
// itself, and another job may listen on the port.
package reach
