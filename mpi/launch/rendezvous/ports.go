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

// listen opens the port that agents meet at. Where it can be told, it is any. Otherwise it is one that all know; where those are taken,
// which anybody on this machine can do, it is any again, and agent 0 tells it in the run directory.
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
		return nil, fmt.Errorf("%w: end who holds them (ss -tlnp shows the programs), give another --master-port, "+
			"or start with srun --mpi=pmi2, which needs no port that is known beforehand", err)
	}
	l, failed := listenFirst(n.hosts(c), anyPort)
	if failed != nil {
		return nil, errors.Join(err, failed)
	}
	if failed := c.savePort(l.port()); failed != nil {
		return nil, errors.Join(err, failed, l.close())
	}
	c.Log.Warn("this agent listens at another port, which the run directory tells the others", "port", l.port(), "error", err)
	return l, nil
}

// wanted are ports for what can be told its port: those that agents meet at, where somebody has said from which ranges they are, and then
// the others.
func (c Config) wanted(others []int) []int {
	if len(c.Ranges) == 0 {
		return others
	}
	return slices.Concat(c.Ports, others)
}

// holders tells whose processes on this machine listen on ports, for a message.
func holders(ports []int) string {
	users := make(map[int]string)
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} { // proc(5)
		text, err := os.ReadFile(name)
		if err != nil {
			continue // one line says less
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
			who = "of nobody who listens: another run has claimed it, or a program has bound it"
		}
		said = append(said, fmt.Sprintf("%d: %s", port, who))
	}
	return strings.Join(said, ", ")
}

// takePort claims the first port of the list that nobody listens on, at any of the hosts, and that no other run on this machine has
// claimed, and listens on it; 0 is one that the kernel chooses. It claims first: a run whose worker is still to bind a port has
// nothing but the claim. Anybody can claim ports: where all are, a port that the kernel chooses is taken without a claim.
func takePort(hosts []string, ports []int) (listeners, io.Closer, error) {
	return takePortBy(claimPort, hosts, ports)
}

// claimer is claimPort.
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
		return l, io.NopCloser(nil), err // in the place of a claim: it is only closed
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

// listenFirst is takePort for those who go on listening, which is claim enough.
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

// anyPort has takePort take a port that the kernel chooses; what is free on one of several hosts may not be on another.
var anyPort = make([]int, 16)

func joinPort(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

// portClaims begins the names of claims.
const portClaims = "@ddpbatch/master-port/"

// claimPort holds a port for a run whose worker is to bind it, so that no other run on this machine takes it: the ranks of both would
// meet in one store. host is the one address that it will be bound at; "": any. A TCP listener would keep the worker out, so the claim is
// an abstract unix socket named by the port: the kernel keeps these by network namespace, whoever the user is, as it does ports, and ends
// them with the process (unix(7)). The error of a port that another run has claimed is EADDRINUSE.
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

// isClaimedBeside reports whether a port is claimed at one address, where this claim is for any, or the other way round: their names
// differ. Each claims before it looks, so of two that begin at one moment none may go on.
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

// listeners listen on one port, each at an address of its own.
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
