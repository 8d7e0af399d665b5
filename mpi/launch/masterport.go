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

// claimMasterPort holds a MASTER_PORT that was given for as long as the run lasts, so that of two runs that are given the same one on one
// machine only one begins: the ranks of both would meet in one store. The claim is no TCP listener, as the worker of rank 0 is to bind the
// port, but an abstract unix socket named by it: the kernel keeps these by network namespace, as it does ports, and ends them with the
// process (unix(7)). nil: no port was given.
func (c AgentConfig) claimMasterPort() (io.Closer, error) {
	if c.MasterPort == 0 {
		return nil, nil
	}
	claim, err := net.Listen("unix", portClaims+joinPort(c.masterHost(), c.MasterPort))
	if err == nil && c.isClaimedBeside() {
		err = errors.Join(syscall.EADDRINUSE, claim.Close())
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("the workers' MASTER_PORT is to be %d, which another run on this machine was given, too: "+
			"give each run a --master-port of its own, or, on one node or under Slurm, leave it out, and a free one is taken", c.MasterPort)
	case err != nil:
		return nil, fmt.Errorf("claim the MASTER_PORT %d for this run: %w", c.MasterPort, err)
	}
	if c.TorchStore { // which is at one address, see serveTorch
		return claim, nil
	}
	if err := c.checkMasterPort(); err != nil {
		return nil, errors.Join(err, claim.Close())
	}
	return claim, nil
}

// isClaimedBeside tells whether a run of pretended nodes, or where this is one a real one, has claimed the port: their names differ. Each claims
// before it looks, so of two that begin at one moment none may go on.
func (c AgentConfig) isClaimedBeside() bool {
	sockets, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return false // whoever binds the port second will find out
	}
	own := c.masterHost()
	for line := range strings.Lines(string(sockets)) {
		_, claim, _ := strings.Cut(strings.TrimSuffix(line, "\n"), portClaims)
		host, port, err := net.SplitHostPort(claim)
		if err == nil && port == strconv.Itoa(c.MasterPort) && host != own && (host == "" || own == "") {
			return true
		}
	}
	return false
}

// checkMasterPort tells whether the worker of rank 0 can bind the MASTER_PORT that was given. Workers that find somebody else there would
// talk to that.
func (c AgentConfig) checkMasterPort() error {
	l, err := listenOn([]string{c.masterHost()}, c.MasterPort)
	if err != nil {
		return c.masterPortTaken(err)
	}
	return l.Close()
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
