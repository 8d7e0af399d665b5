package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/redact"
)

// rendezvous is what torchrun's --rdzv flags say.
type rendezvous struct {
	backend string // "": not given
	host    string // "": no endpoint
	port    int    // -1: not given
	id      string
	conf    rendezvousConf
}

// rendezvousConf is what --rdzv-conf says. Times are zero where it does not.
type rendezvousConf struct {
	timeout, join time.Duration
	lastCall      *time.Duration
	isHost        *bool
	idle          []string // keys that change nothing here
}

const (
	c10dPort = 29400 // torchrun's, where the endpoint names none
	static   = "static"
	c10d     = "c10d"
)

// setBackend takes the backends that can be done without a server of their own.
func setBackend(o *runOptions, text string) error {
	switch text {
	case static, c10d:
		o.rdzv.backend = text
		return nil
	case "etcd", "etcd-v2", "etcd-server", "zeus", "zeus-adapter", "mast":
		return fmt.Errorf("%q needs a server that ddpbatch does not talk to: under Slurm leave the --rdzv flags out, "+
			"elsewhere write --rdzv-backend c10d --rdzv-endpoint HOST:PORT with the first node's name", text)
	}
	return unknownWord(text, []string{static, c10d})
}

func setEndpoint(o *runOptions, text string) (err error) {
	if strings.TrimSpace(text) == "" {
		return nil // torchrun's default
	}
	o.rdzv.host, o.rdzv.port, err = parseEndpoint(text)
	return err
}

// idleConf are keys of torchrun's --rdzv-conf that say how it waits for its own store.
var idleConf = []string{
	"close_timeout", "read_timeout", "heartbeat_timeout", "keep_alive_interval", "keep_alive_max_attempt",
	"use_libuv", "rank", "local_addr", "protocol", "cacert", "ssl_cert", "ssl_cert_key",
}

func setConf(o *runOptions, text string) error {
	if strings.TrimSpace(text) == "" {
		return nil // torchrun's default
	}
	conf := rendezvousConf{}
	var seen []string
	for pair := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
		if key, value = strings.TrimSpace(key), strings.TrimSpace(value); !ok || key == "" || value == "" {
			return fmt.Errorf("%q of %q is not KEY=VALUE", redact.Text(pair), redact.Text(text))
		}
		if slices.Contains(seen, key) {
			return fmt.Errorf("%q says %s twice", redact.Text(text), key)
		}
		seen = append(seen, key)
		if err := conf.take(key, value); err != nil {
			return err
		}
	}
	o.rdzv.conf = conf
	return nil
}

func (c *rendezvousConf) take(key, value string) (err error) {
	switch key {
	case "timeout":
		c.timeout, err = parseSpan(value, time.Millisecond)
	case "join_timeout":
		c.join, err = parseSpan(value, time.Millisecond)
	case "last_call_timeout":
		var span time.Duration
		span, err = parseSpan(value, 0)
		c.lastCall = &span
	case "is_host":
		var host bool
		host, err = parsePythonBool(value)
		c.isHost = &host
	case "store_type":
		if value != "tcp" {
			err = fmt.Errorf("%q: nodes meet over TCP: leave it out", value)
		}
	default:
		near := jobfile.Nearest(key, append([]string{"timeout", "join_timeout", "last_call_timeout", "is_host", "store_type"}, idleConf...))
		if near != "" && near != key {
			return fmt.Errorf("there is no %s: did you mean %s?", key, near)
		}
		c.idle = append(c.idle, key) // a back end may read keys that nobody else knows
	}
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

// parsePythonBool reads what torchrun takes for is_host: 1, true, t, yes, y and their opposites.
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
