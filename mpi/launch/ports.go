package launch

import (
	"crypto/sha256"
	"encoding/binary"
	"net"
	"strconv"
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

// freePort finds a port that nobody on this machine listens on now, whatever the address: what other programs do before the worker of
// rank 0 binds it, nobody can know.
func freePort(ports []int) (int, error) {
	l, err := listenFirst([]string{""}, ports)
	if err != nil {
		return 0, err
	}
	return portOf(l), l.Close()
}

func joinPort(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }
