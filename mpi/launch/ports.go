package launch

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"syscall"
)

// portRanges lie outside Linux's default range for outgoing connections,
// 32768-60999 (ip(7), ip_local_port_range), so that no client happens to hold
// one of them.
var portRanges = [...]struct{ first, count uint64 }{{61000, 4536}, {20000, 12768}}

// Ports lists up to n ports in an order that the seed decides: every node that
// knows the seed (cluster, job, step, restart) tries the same ones, and two jobs
// on a node try others. The ports from 61000 to 65535 come first, then those from 20000
// to 32767; none comes twice.
func Ports(seed string, n int) []int {
	sum := sha256.Sum256([]byte(seed))
	start, stride := binary.BigEndian.Uint64(sum[:8]), binary.BigEndian.Uint64(sum[8:16])
	var list []int
	for _, r := range portRanges {
		// Steps of a length that has no factor in common with the range visit
		// each port once.
		step := stride%r.count + 1
		for gcd(step, r.count) != 1 {
			step++
		}
		for i := uint64(0); i < r.count && len(list) < n; i++ {
			list = append(list, int(r.first+(start%r.count+i*step)%r.count))
		}
	}
	return list
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// takePort claims the first port of the list that nobody listens on, at any of the hosts, and that no other run on this machine has
// claimed, and listens on it; 0 is one that the kernel chooses. It claims first: a run whose worker is still to bind a port has
// nothing but the claim. Anybody can claim ports: where all are, a port that the kernel chooses is taken without a claim.
func takePort(hosts []string, ports []int) (net.Listener, io.Closer, error) {
	return takePortBy(claimPort, hosts, ports)
}

// claimer is claimPort.
type claimer func(host string, port int) (io.Closer, error)

func takePortBy(claim claimer, hosts []string, ports []int) (net.Listener, io.Closer, error) {
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
		return l, noClaim{}, err
	}
	return nil, nil, fmt.Errorf("none of %d ports can be used: %w", len(ports), last)
}

// noClaim stands in the place of a claim.
type noClaim struct{}

func (noClaim) Close() error { return nil }

func (claim claimer) listen(hosts []string, port int) (l net.Listener, claimed io.Closer, err error) {
	if port == 0 {
		if l, err = listenOn(hosts, 0); err != nil {
			return nil, nil, err
		}
		if claimed, err = claim("", portOf(l)); err != nil {
			return nil, nil, errors.Join(err, l.Close())
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
func listenFirst(hosts []string, ports []int) (net.Listener, error) {
	l, claim, err := takePort(hosts, ports)
	if err != nil {
		return nil, err
	}
	if err := claim.Close(); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// anyPort has takePort take a port that the kernel chooses; what is free on one of several hosts may not be on another.
var anyPort = make([]int, 16)

func joinPort(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }
