package rendezvous

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// listen opens the port that agents meet at. With Exchange it may be any port. Otherwise it is one of Ports, which all agents know.
// If all of them are taken, which any user of this machine can bring about, it is again any port, and agent 0 saves it in the run
// directory.
func (c Config) listen(n localNetwork) (listeners, error) {
	switch {
	case c.Count == 1:
		return listenFirst(n.hosts(c), anyPort)
	case c.Exchange != nil:
		return listenFirst(n.hosts(c), c.wanted(anyPort))
	}
	l, err := listenFirst(n.hosts(c), c.Ports)
	if err != nil {
		err = fmt.Errorf("listen for the other agents: %w", err)
	}
	if !errors.Is(err, syscall.EADDRINUSE) {
		return l, err
	}
	if err = fmt.Errorf("%w (%s)", err, holders(c.Ports)); c.RunDir == nil {
		return nil, fmt.Errorf("%w: end the programs that hold them (ss -tlnp shows these), give another --master-port, "+
			"or start with srun --mpi=pmi2, which does not need a port that is known beforehand", err)
	}
	l, failed := listenFirst(n.hosts(c), anyPort)
	if failed != nil {
		return nil, errors.Join(err, failed)
	}
	if failed := c.savePort(l.port()); failed != nil {
		return nil, errors.Join(err, failed, l.close())
	}
	c.Log.Warn("this agent listens at another port, which the others find in the run directory", "port", l.port(), "error", err)
	return l, nil
}

// wanted lists ports for a server that others learn the port of: the ports that agents meet at, if their ranges were given, and
// then others.
func (c Config) wanted(others []int) []int {
	if len(c.Ranges) == 0 {
		return others
	}
	return slices.Concat(c.Ports, others)
}

// holders describes, for a message, which users' processes on this machine listen on ports.
func holders(ports []int) string {
	users := make(map[int]string)
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} { // proc(5)
		text, err := os.ReadFile(name)
		if err != nil {
			continue // the message says less then
		}
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line)
			if len(fields) < 8 || fields[3] != "0A" { // listening
				continue
			}
			_, hex, _ := strings.Cut(fields[1], ":")
			if port, err := strconv.ParseUint(hex, 16, 16); err == nil && slices.Contains(ports, int(port)) {
				users[int(port)] = "of user " + fields[7]
			}
		}
	}
	var said []string
	for _, port := range ports {
		who := users[port]
		if who == "" {
			who = "not listened on: another run has claimed it, or a program has bound it"
		}
		said = append(said, fmt.Sprintf("%d: %s", port, who))
	}
	return strings.Join(said, ", ")
}

// takePort claims the first port of the list that no process listens on, at any of the hosts, and that no other run on this machine
// has claimed, and listens on it. Port 0 stands for a port that the kernel chooses. It claims first, because a run whose worker has
// yet to bind a port holds only the claim. Any user can claim ports: if all are claimed, it takes a port that the kernel chooses
// without a claim.
func takePort(hosts []string, ports []int) (listeners, io.Closer, error) {
	return takePortBy(claimPort, hosts, ports)
}

// claimer is claimPort, or a test's.
type claimer func(host string, port int) (io.Closer, error)

func takePortBy(claim claimer, hosts []string, ports []int) (listeners, io.Closer, error) {
	var last error
	for _, port := range ports {
		l, claimed, err := claim.listen(hosts, port)
		if err == nil {
			return l, claimed, nil
		}
		last = err
		if !errors.Is(err, syscall.EADDRINUSE) && !errors.Is(err, syscall.EACCES) {
			break // no other port will do better
		}
	}
	if errors.Is(last, errClaimed) && slices.Contains(ports, 0) {
		l, err := listenOn(hosts, 0)
		return l, io.NopCloser(nil), err // stands for a claim, which is only closed
	}
	return nil, nil, fmt.Errorf("none of %d ports can be used: %w", len(ports), last)
}

func (claim claimer) listen(hosts []string, port int) (l listeners, claimed io.Closer, err error) {
	if port == 0 {
		if l, err = listenOn(hosts, 0); err != nil {
			return nil, nil, err
		}
		if claimed, err = claim("", l.port()); err != nil {
			return nil, nil, errors.Join(err, l.close())
		}
		return l, claimed, nil
	}
	if claimed, err = claim("", port); err != nil {
		return nil, nil, err
	}
	if l, err = listenOn(hosts, port); err != nil {
		return nil, nil, errors.Join(err, claimed.Close())
	}
	return l, claimed, nil
}

// listenFirst is takePort for servers that go on listening, and so need no claim.
func listenFirst(hosts []string, ports []int) (listeners, error) {
	l, claim, err := takePort(hosts, ports)
	if err != nil {
		return nil, err
	}
	if err := claim.Close(); err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

// anyPort makes takePort take a port that the kernel chooses. It tries several: a port that is free on one host may be taken on another.
var anyPort = make([]int, 16)

func joinPort(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

// portClaims is the prefix of the names of claims.
const portClaims = "@ddpbatch/master-port/"

// claimPort holds a port for a run whose worker is to bind it, so that no other run on this machine takes it: the ranks of both
// would meet in one store. host is the address that it will be bound at; "" is any. A TCP listener would keep the worker out, so
// the claim is an abstract unix socket named by the port. The kernel keeps these by network namespace, for all users alike, as it
// does ports, and removes them with the process (unix(7)). The error is EADDRINUSE if another run has claimed the port.
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

// errClaimed is the error for a port that another run on this machine has claimed.
var errClaimed = errors.New("another run has claimed it")

// isClaimedBeside reports whether a port is claimed at one address while this claim is for all, or the other way round: the names
// of the claims differ. Each run claims before it checks, so if two begin at the same moment, both may fail but never both go on.
func isClaimedBeside(own string, port int) bool {
	sockets, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return false // the second to bind the port gets an error
	}
	for line := range strings.Lines(string(sockets)) {
		fields := strings.Fields(line) // the eighth is the name; its first byte, 0, is shown as @
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

// listeners listen on one port, each at its own address.
type listeners []net.Listener

// listenOn listens on one port of all hosts.
func listenOn(hosts []string, port int) (listeners, error) {
	var all listeners
	for _, host := range hosts {
		l, err := net.Listen("tcp", joinPort(host, port))
		if err != nil {
			return nil, errors.Join(err, all.close())
		}
		all = append(all, l)
		port = portOf(l)
	}
	return all, nil
}

func (l listeners) port() int { return portOf(l[0]) }

func (l listeners) close() error {
	var errs []error
	for _, one := range l {
		errs = append(errs, one.Close())
	}
	return errors.Join(errs...)
}

func portOf(l net.Listener) int { return l.Addr().(*net.TCPAddr).Port }
