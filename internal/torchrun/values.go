package torchrun

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	words "ddpbatch/internal/text"
)

// A setter sets a field of Options from the text of a flag, or returns an error.
type setter = func(o *Options, text string) error

func switchOf(field func(*Options) *bool) setter {
	return func(o *Options, text string) error {
		// PET_ variables of switches are numbers (torch.distributed.argparse_util)
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("%q is neither 1 nor 0", text)
		}
		*field(o) = n != 0
		return nil
	}
}

// parsed returns a setter for values that a function parses.
func parsed[T any](parse func(text string) (T, error), field func(*Options) *T) setter {
	return func(o *Options, text string) (err error) {
		*field(o), err = parse(text)
		return err
	}
}

// numberOf returns a setter for integers from 0 to highest.
func numberOf(highest int, field func(*Options) *int) setter {
	return parsed(func(text string) (int, error) { return numberIn(text, 0, highest) }, field)
}

// numberIn parses an integer within limits.
func numberIn(text string, lowest, highest int) (int, error) {
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || n < lowest || n > highest {
		return 0, fmt.Errorf("%q is not a whole number from %d to %d", text, lowest, highest)
	}
	return n, nil
}

// longestText is the largest number of bytes of a name that goes into variables and messages.
const longestText = 512

func textOf(field func(*Options) *string) setter {
	return func(o *Options, text string) error {
		if len(text) > longestText || strings.ContainsFunc(text, unicode.IsControl) {
			return fmt.Errorf("%.40q is longer than %d bytes, or has control characters", text, longestText)
		}
		*field(o) = text
		return nil
	}
}

func pathOf(field func(*Options) *string) setter {
	return func(o *Options, text string) error {
		if len(text) > 4096 || strings.ContainsRune(text, 0) { // PATH_MAX of limits.h
			return fmt.Errorf("%.40q is not a path: it is longer than 4096 bytes, or has a NUL", text)
		}
		*field(o) = text
		return nil
	}
}

func wordOf(field func(*Options) *string, known ...string) setter {
	return func(o *Options, text string) error {
		if !slices.Contains(known, text) {
			return unknownWord(text, known)
		}
		*field(o) = text
		return nil
	}
}

// unknownWord returns an error that lists the known words, and the one that is probably meant.
func unknownWord(text string, known []string) error {
	if near := words.Nearest(text, known); near != "" {
		return fmt.Errorf("%q is not one of %s: did you mean %s?", text, strings.Join(known, ", "), near)
	}
	return fmt.Errorf("%q is not one of %s", text, strings.Join(known, ", "))
}

func spanOf(lowest time.Duration, field func(*Options) *time.Duration) setter {
	return parsed(func(text string) (time.Duration, error) { return parseSpan(text, lowest) }, field)
}

// spanOrNone accepts a second or more, or 0, which means never.
func spanOrNone(field func(*Options) *time.Duration) setter {
	return parsed(func(text string) (time.Duration, error) {
		if span, err := parseSpan(text, 0); err == nil && span == 0 {
			return 0, nil
		}
		return parseSpan(text, time.Second)
	}, field)
}

// longestSpan is longer than any job. Larger values are milliseconds or typing errors.
const longestSpan = 366 * 24 * time.Hour

// parseSpan parses a time: seconds, as in torchrun, or a duration such as 1m30s.
func parseSpan(text string, lowest time.Duration) (time.Duration, error) {
	span, err := time.ParseDuration(text)
	if seconds, failed := strconv.ParseFloat(text, 64); failed == nil {
		span, err = -1, nil
		if seconds >= 0 && seconds <= longestSpan.Seconds() { // false for NaN, too
			span = time.Duration(seconds * float64(time.Second))
		}
	}
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is not a time: write seconds, or a duration such as 90s or 5m", text)
	case span < lowest || span > longestSpan:
		return 0, fmt.Errorf("%q is not between %v and %v", text, lowest, longestSpan)
	}
	return span, nil
}

// mostNodes is larger than any cluster. Larger values are typing errors.
const mostNodes = 1 << 16

// NodeRange is --nnodes: N, or MIN:MAX. The zero value means not given.
type NodeRange struct{ Min, Max int }

func parseNodes(text string) (r NodeRange, err error) {
	least, most, isRange := strings.Cut(text, ":")
	if r.Min, err = numberIn(least, 1, mostNodes); err != nil {
		return NodeRange{}, err
	}
	r.Max = r.Min
	if isRange {
		if r.Max, err = numberIn(most, 1, mostNodes); err != nil {
			return NodeRange{}, fmt.Errorf("%w: a range is MIN:MAX, such as 2:4", err)
		}
	}
	if r.Min > r.Max {
		return NodeRange{}, fmt.Errorf("%q is a range from %d to %d: write the smaller number first", text, r.Min, r.Max)
	}
	return r, nil
}

func (r NodeRange) String() string {
	if r.Min == r.Max {
		return strconv.Itoa(r.Max)
	}
	return fmt.Sprintf("%d:%d", r.Min, r.Max)
}

// hostPattern matches what torchrun accepts as a host: labels, an IPv4 or an IPv6 address. It is compiled when first needed: counted
// repetitions take long to compile, and most processes never need it.
var hostPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[\w.:%-]{1,255}$`) })

// parseHost parses a name or an address. An IPv6 address may be in brackets.
func parseHost(text string) (string, error) {
	host := text
	if inner, ok := strings.CutPrefix(text, "["); ok && strings.HasSuffix(inner, "]") {
		host = strings.TrimSuffix(inner, "]")
	}
	if !hostPattern().MatchString(host) || strings.Contains(host, ":") && !IsIP(host) {
		return "", fmt.Errorf("%q is neither a host's name nor an address", text)
	}
	return host, nil
}

// IsIP reports whether text is an IP address, also with a zone (fe80::1%eth0).
func IsIP(text string) bool {
	address, _, _ := strings.Cut(text, "%")
	return net.ParseIP(address) != nil
}

// parseEndpoint parses host, host:port, [v6] or [v6]:port. A missing port is -1.
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

// stoppable are the signals by which an agent can be told to stop. Others cannot be caught, or mean something else to it.
var stoppable = []syscall.Signal{
	syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM,
	syscall.SIGXCPU, syscall.SIGPWR,
}

// parseSignals parses SIGTERM,INT,...
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
