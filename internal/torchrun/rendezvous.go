package torchrun

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"ddpbatch/internal/redact"
	words "ddpbatch/internal/text"
)

// Rendezvous holds torchrun's --rdzv flags.
type Rendezvous struct {
	Backend string // "": not given
	Host    string // "": no endpoint
	Port    int    // -1: not given
	ID      string
	Conf    RendezvousConf
}

// RendezvousConf holds --rdzv-conf. Times that are not given are zero.
type RendezvousConf struct {
	Timeout, JoinTimeout time.Duration
	LastCall             *time.Duration
	IsHost               *bool
	Idle                 []string // keys that have no effect here
}

const (
	C10dPort = 29400 // torchrun's default port of the endpoint
	Static   = "static"
	C10d     = "c10d"
)

// setBackend accepts the backends that do not need a server of their own.
func setBackend(o *Options, text string) error {
	switch text {
	case Static, C10d:
		o.Rendezvous.Backend = text
		return nil
	case "etcd", "etcd-v2", "etcd-server", "zeus", "zeus-adapter", "mast":
		return fmt.Errorf("%q needs a server that ddpbatch does not support: under Slurm leave the --rdzv flags out, "+
			"elsewhere write --rdzv-backend c10d --rdzv-endpoint HOST:PORT with the first node's name", text)
	}
	return unknownWord(text, []string{Static, C10d})
}

func setEndpoint(o *Options, text string) (err error) {
	if strings.TrimSpace(text) == "" {
		return nil // torchrun's default
	}
	o.Rendezvous.Host, o.Rendezvous.Port, err = parseEndpoint(text)
	return err
}

// idleConf are keys of torchrun's --rdzv-conf that control how it waits for its own store.
var idleConf = []string{
	"close_timeout", "read_timeout", "heartbeat_timeout", "keep_alive_interval", "keep_alive_max_attempt",
	"use_libuv", "rank", "local_addr", "protocol", "cacert", "ssl_cert", "ssl_cert_key",
}

func setConf(o *Options, text string) error {
	if strings.TrimSpace(text) == "" {
		return nil // torchrun's default
	}
	conf := RendezvousConf{}
	var seen []string
	for pair := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
		if key, value = strings.TrimSpace(key), strings.TrimSpace(value); !ok || key == "" || value == "" {
			return fmt.Errorf("%q of %q is not KEY=VALUE", redact.Text(pair), redact.Text(text))
		}
		if slices.Contains(seen, key) {
			return fmt.Errorf("%q has %s twice", redact.Text(text), key)
		}
		seen = append(seen, key)
		if err := conf.take(key, value); err != nil {
			return err
		}
	}
	o.Rendezvous.Conf = conf
	return nil
}

func (c *RendezvousConf) take(key, value string) (err error) {
	switch key {
	case "timeout":
		c.Timeout, err = parseSpan(value, time.Millisecond)
	case "join_timeout":
		c.JoinTimeout, err = parseSpan(value, time.Millisecond)
	case "last_call_timeout":
		var span time.Duration
		span, err = parseSpan(value, 0)
		c.LastCall = &span
	case "is_host":
		var host bool
		host, err = parsePythonBool(value)
		c.IsHost = &host
	case "store_type":
		if value != "tcp" {
			err = fmt.Errorf("%q: nodes meet over TCP; leave it out", value)
		}
	default:
		near := words.Nearest(key, append([]string{"timeout", "join_timeout", "last_call_timeout", "is_host", "store_type"}, idleConf...))
		if near != "" && near != key {
			return fmt.Errorf("%s does not exist: did you mean %s?", key, near)
		}
		c.Idle = append(c.Idle, key) // a backend may read keys that are not known here
	}
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

// parsePythonBool parses the values that torchrun accepts for is_host: 1, true, t, yes, y and their opposites.
func parsePythonBool(text string) (bool, error) {
	switch strings.ToLower(text) {
	case "yes", "y":
		return true, nil
	case "no", "n":
		return false, nil
	}
	v, err := strconv.ParseBool(strings.ToLower(text))
	if err != nil {
		return false, fmt.Errorf("%q is neither true nor false", text)
	}
	return v, nil
}

// JoinEndpoint formats an endpoint whose port may be absent (-1).
func JoinEndpoint(host string, port int) string {
	if port < 0 {
		return host
	}
	return net.JoinHostPort(host, strconv.Itoa(port))
}
