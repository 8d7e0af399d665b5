package main

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// mostNodes is more than there are: what is beyond is a slip of the pen.
const mostNodes = 1 << 16

// nodeRange is --nnodes: N, or MIN:MAX. Zero: not given.
type nodeRange struct{ min, max int }

func parseNodes(text string) (r nodeRange, err error) {
	least, most, isRange := strings.Cut(text, ":")
	if r.min, err = numberIn(least, 1, mostNodes); err != nil {
		return nodeRange{}, err
	}
	r.max = r.min
	if isRange {
		if r.max, err = numberIn(most, 1, mostNodes); err != nil {
			return nodeRange{}, fmt.Errorf("%w: a range is MIN:MAX, such as 2:4", err)
		}
	}
	if r.min > r.max {
		return nodeRange{}, fmt.Errorf("%q is a range from %d to %d: write the smaller number first", text, r.min, r.max)
	}
	return r, nil
}

func (r nodeRange) String() string {
	if r.min == r.max {
		return strconv.Itoa(r.max)
	}
	return fmt.Sprintf("%d:%d", r.min, r.max)
}

// hostPattern is what torchrun takes for a host: labels, an IPv4 or an IPv6 address. Counted
// repetitions take long to compile, and most processes never ask.
var hostPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[\w.:%-]{1,255}$`) })

// parseHost reads a name or an address; one of IPv6 may stand in brackets.
func parseHost(text string) (string, error) {
	host := text
	if inner, ok := strings.CutPrefix(text, "["); ok && strings.HasSuffix(inner, "]") {
		host = strings.TrimSuffix(inner, "]")
	}
	if !hostPattern().MatchString(host) || strings.Contains(host, ":") && !isIP(host) {
		return "", fmt.Errorf("%q is neither a host's name nor an address", text)
	}
	return host, nil
}

// isIP is net.ParseIP that knows zones (fe80::1%eth0).
func isIP(text string) bool {
	address, _, _ := strings.Cut(text, "%")
	return net.ParseIP(address) != nil
}

// isLoopbackName tells whether a host is this machine alone, wherever it is said.
func isLoopbackName(host string) bool {
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback() || strings.EqualFold(host, "localhost")
}

// parseEndpoint reads host, host:port, [v6] or [v6]:port. Port -1: not given.
func parseEndpoint(text string) (host string, port int, err error) {
	text = strings.TrimSpace(text)
	host, port = text, -1
	if i := strings.LastIndexByte(text, ':'); i >= 0 && !strings.HasSuffix(text, "]") {
		host = text[:i]
		if port, err = numberIn(text[i+1:], 0, 65535); err != nil {
			return "", 0, fmt.Errorf("port of %q: %w", text, err)
		}
	}
	if host == "" {
		return "", 0, fmt.Errorf("%q has no host: write HOST:PORT (is a variable of the script empty?)", text)
	}
	host, err = parseHost(host)
	return host, port, err
}

// stoppable are the signals that an agent can be told to stop by; others cannot be caught, or mean something else to it.
var stoppable = []syscall.Signal{
	syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGXCPU, syscall.SIGPWR,
}

// parseSignals reads SIGTERM,INT,...
func parseSignals(text string) (list []syscall.Signal, err error) {
	names := make([]string, len(stoppable))
	for i, sig := range stoppable {
		names[i] = unix.SignalName(sig)
	}
	for part := range strings.SplitSeq(text, ",") {
		name := strings.ToUpper(strings.TrimSpace(part))
		if !strings.HasPrefix(name, "SIG") {
			name = "SIG" + name
		}
		i := slices.Index(names, name)
		if i < 0 {
			return nil, unknownWord(name, names)
		}
		list = append(list, stoppable[i])
	}
	return list, nil
}
