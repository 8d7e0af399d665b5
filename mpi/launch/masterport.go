package launch

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// portClaims begins the names of claims.
const portClaims = "@ddpbatch/master-port/"

// claimPort holds a port for a run whose worker is to bind it, so that no other run on this machine takes it: the ranks of both would
// meet in one store. host is the one address that it will be bound at; "": any. A TCP listener would keep the worker out, so the claim is an
// abstract unix socket named by the port: the kernel keeps these by network namespace, whoever the user is, as it does ports, and ends them
// with the process (unix(7)). The error of a port that another run has claimed is EADDRINUSE.
func claimPort(host string, port int) (io.Closer, error) {
	claim, err := net.Listen("unix", portClaims+joinPort(host, port))
	if err == nil && isClaimedBeside(host, port) {
		err = errors.Join(syscall.EADDRINUSE, claim.Close())
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		err = fmt.Errorf("%w: %w", errClaimed, err)
	}
	if err != nil {
		return nil, fmt.Errorf("claim port %d for this run: %w", port, err)
	}
	return claim, nil
}

// errClaimed: somebody on this machine has claimed a port.
var errClaimed = errors.New("another run has claimed it")

// isClaimedBeside tells whether a port is claimed at one address, where this claim is for any, or the other way round: their names differ.
// Each claims before it looks, so of two that begin at one moment none may go on.
func isClaimedBeside(own string, port int) bool {
	sockets, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return false // whoever binds the port second will find out
	}
	for line := range strings.Lines(string(sockets)) {
		fields := strings.Fields(line) // the eighth is the name, whose first byte, 0, is shown as @
		if len(fields) != 8 {
			continue
		}
		claim, ok := strings.CutPrefix(fields[7], portClaims)
		host, text, err := net.SplitHostPort(claim)
		if ok && err == nil && text == strconv.Itoa(port) && host != own && (host == "" || own == "") {
			return true
		}
	}
	return false
}

// claimMasterPort holds a MASTER_PORT that was given for as long as the run lasts. nil: no port was given.
func (c AgentConfig) claimMasterPort() (io.Closer, error) {
	if c.MasterPort == 0 {
		return nil, nil
	}
	claim, err := claimPort(c.masterHost(), c.MasterPort)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("the workers' MASTER_PORT is to be %d, which another run on this machine was given, too: "+
			"give each run a --master-port of its own, or, on one node or under Slurm, leave it out, and a free one is taken", c.MasterPort)
	case err != nil:
		return nil, err
	}
	if c.TorchStore { // which is at one address, see serveTorch
		return claim, nil
	}
	l, err := listenOn([]string{c.masterHost()}, c.MasterPort)
	if err != nil {
		return nil, errors.Join(c.masterPortTaken(err), claim.Close())
	}
	return claim, l.Close()
}

func (c AgentConfig) masterPortTaken(err error) error {
	return fmt.Errorf("the workers' MASTER_PORT is to be %d, which cannot be listened on (%w): "+
		"end who has it (ss -tanp shows who), or give another --master-port", c.MasterPort, err)
}

// masterHost is where the worker of rank 0 may bind MASTER_PORT: as a rule on all addresses, whatever MASTER_ADDR says, but the pretend nodes
// of one machine have an address each.
func (c AgentConfig) masterHost() string {
	if c.OneMachine {
		return c.MasterAddr
	}
	return ""
}
