package transport

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/text"
	"ddpbatch/mpi/transport/ucx"
)

// UCX says whether data between machines goes through UCX.
type UCX int

const (
	UCXWhereItWorks UCX = iota // between ranks that share no memory, where every rank has it, and a device for it
	UCXNever
	UCXAlways // between all ranks; one without it is an error
)

// offer is what a rank tells the others of its UCX.
type offer struct {
	Why        string `json:",omitempty"` // it has none
	NoDevice   bool   `json:",omitempty"` // that is because it has no device
	Version    ucx.Version
	Transports string // those that it is to use, and the link layer of its devices: both sides need the same
	Address    []byte
}

// setUpRDMA makes links through UCX to the ranks that share no memory with this one, or returns nil where data goes by TCP: all ranks come
// to the same answer. A worker that others may have sent to is left to the end of the process, as UCX must not destroy it.
func (c *connector) setUpRDMA(ctx context.Context) (*rdma, error) {
	if c.cfg.UCX == UCXNever || c.cfg.UCX == UCXWhereItWorks && (c.cfg.Encrypt || !c.spansMachines()) {
		return nil, nil // UCX does not encrypt
	}
	worker, own := c.openUCX()
	offers, err := c.exchangeOffers(ctx, own)
	if err != nil {
		return nil, err
	}
	if rank, why := misfit(offers); why != "" {
		if worker != nil {
			worker.CloseLinks(0) // it has none
			worker.Destroy()
		}
		return nil, c.withoutUCX(offers, rank, why)
	}
	links, err := c.connectUCX(ctx, worker, offers)
	rank, why, exchangeErr := c.compareVerdicts(ctx, worker, err)
	if exchangeErr != nil {
		return nil, exchangeErr
	}
	if why != "" {
		return nil, c.withoutUCX(offers, rank, why)
	}
	r := &rdma{worker: worker, links: links}
	if c.cfg.Rank == 0 {
		c.cfg.Log.Info("data "+c.between()+" goes through UCX", "by", r, "library", worker.File())
	}
	return r, c.watchHosts()
}

// between says which data it is that UCX may carry.
func (c *connector) between() string {
	if c.cfg.UCX == UCXAlways {
		return "between ranks"
	}
	return "between machines"
}

// spansMachines reports whether there are ranks on other machines: if so, every rank sees some.
func (c *connector) spansMachines() bool {
	for _, r := range c.remotes {
		if r != nil && !r.local {
			return true
		}
	}
	return false
}

// openUCX opens this rank's worker, if it is to have one.
func (c *connector) openUCX() (*ucx.Worker, offer) {
	var chosen []ucx.Device
	if c.cfg.Encrypt {
		return nil, offer{Why: "it is to encrypt its data (mpi.encrypt), which UCX does not"}
	}
	root := os.DirFS("/")
	transports := ucx.Variable("UCX_TLS")
	devices, err := ucx.Devices(root)
	if err != nil && (transports == "" || c.cfg.UCX == UCXWhereItWorks) {
		return nil, offer{Why: err.Error(), NoDevice: errors.Is(err, ucx.ErrNoDevice)}
	}
	kind := ""
	if len(devices) > 0 && ucx.Variable("UCX_NET_DEVICES") == "" {
		chosen = ucx.Choose(devices, ownCores(), root)
		kind = chosen[0].Kind
	}
	worker, err := ucx.Open(ucx.Config{Rank: c.cfg.Rank, Size: c.cfg.Size, Devices: chosen, Verbs: transports == ""})
	if err != nil {
		return nil, offer{Why: err.Error()}
	}
	return worker, offer{Version: worker.Version(), Transports: cmp.Or(transports, "verbs") + " " + kind, Address: worker.Address()}
}

// ownCores are the cores that this process may run on.
func ownCores() []int {
	var mask unix.CPUSet
	if unix.SchedGetaffinity(0, &mask) != nil {
		return nil
	}
	var cores []int
	for core := range len(mask) * 64 {
		if mask.IsSet(core) {
			cores = append(cores, core)
		}
	}
	return cores
}

func (c *connector) exchangeOffers(ctx context.Context, own offer) ([]offer, error) {
	word, err := json.Marshal(own)
	if err != nil {
		return nil, err
	}
	words, err := c.exchange(ctx, word)
	if err != nil {
		return nil, err
	}
	offers := make([]offer, len(words))
	for rank, word := range words {
		o := &offers[rank]
		if err := json.Unmarshal(word, o); err != nil {
			return nil, fmt.Errorf("rank %d: %w: what it says of UCX: %w", rank, ErrProtocol, err)
		}
		if o.Why == "" && len(o.Address) == 0 {
			return nil, fmt.Errorf("rank %d: %w: it says that it has UCX, and no address", rank, ErrProtocol)
		}
		o.Why, o.Transports = text.Clean(o.Why), text.Clean(o.Transports)
	}
	return offers, nil
}

// misfit is the first rank that cannot use UCX with the others, and why; "" where all can.
func misfit(offers []offer) (rank int, why string) {
	first := offers[0]
	for rank, o := range offers {
		switch {
		case o.Why != "":
			return rank, o.Why
		case o.Version.Major != first.Version.Major || o.Version.Minor != first.Version.Minor:
			return rank, fmt.Sprintf("its UCX is %v, and that of rank 0 is %v: give all the same version", o.Version, first.Version)
		case o.Transports != first.Transports:
			return rank, fmt.Sprintf("its UCX is to use %s, and that of rank 0 %s", o.Transports, first.Transports)
		}
	}
	return 0, ""
}

// withoutUCX says why data goes by TCP, or is the error where it must not.
func (c *connector) withoutUCX(offers []offer, rank int, why string) error {
	if c.cfg.UCX == UCXAlways {
		return fmt.Errorf("use UCX: rank %d: %s", rank, why)
	}
	if c.cfg.Rank != 0 {
		return nil // rank 0 says it
	}
	level := c.cfg.Log.Info
	for _, o := range offers {
		if !o.NoDevice { // somebody has a card, and may have expected to use it
			level = c.cfg.Log.Warn
		}
	}
	level("data "+c.between()+" goes by TCP and not through UCX", "network", network(c.cfg.Listen), "rank", rank, "why", why)
	return nil
}

// network says which interface has an address, and whether it is IP over InfiniBand: TCP is no RDMA there, either.
func network(addr string) string {
	interfaces, err := net.Interfaces()
	if err != nil {
		return addr
	}
	for _, i := range interfaces {
		addrs, err := i.Addrs()
		if err != nil {
			continue
		}
		for _, a := range addrs {
			if prefix, err := netip.ParsePrefix(a.String()); err != nil || prefix.Addr().String() != addr {
				continue
			}
			const infiniband = "32" // ARPHRD_INFINIBAND of <linux/if_arp.h>
			if kind, err := os.ReadFile("/sys/class/net/" + i.Name + "/type"); err == nil && strings.TrimSpace(string(kind)) == infiniband {
				return i.Name + " (IP over InfiniBand)"
			}
			return i.Name
		}
	}
	return addr
}

// tryLimit is how long UCX may take to reach another machine.
const tryLimit = 30 * time.Second

// connectUCX makes the links, and tries one of them, to the next rank of another machine. Of the ranks of one machine each tries another
// one, if there are as many.
func (c *connector) connectUCX(ctx context.Context, worker *ucx.Worker, offers []offer) ([]*ucx.Link, error) {
	links := make([]*ucx.Link, len(c.remotes))
	lower := 0 // ranks that share memory with this one
	for _, r := range c.remotes[:c.cfg.Rank] {
		if r.memory != nil {
			lower++
		}
	}
	var next *ucx.Link
	for i := range c.remotes {
		rank := (c.cfg.Rank + 1 + i) % len(c.remotes)
		r := c.remotes[rank]
		if r == nil || r.memory != nil {
			continue
		}
		link, err := worker.Connect(rank, offers[rank].Address)
		if err != nil {
			return nil, err
		}
		if links[rank] = link; next == nil {
			next = link
		} else if lower > 0 {
			next = link
			lower--
		}
	}
	if next == nil {
		return links, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, tryLimit, fmt.Errorf("it does not answer within %v", tryLimit))
	defer cancel()
	return links, next.Try(ctx)
}

// compareVerdicts tells the others what came of connectUCX, and returns the first rank where it failed, and why.
func (c *connector) compareVerdicts(ctx context.Context, worker *ucx.Worker, verdict error) (rank int, why string, err error) {
	word := []byte{}
	if verdict != nil {
		word = []byte(verdict.Error()[:min(len(verdict.Error()), maxWord)])
	}
	var words [][]byte
	done := make(chan struct{})
	go func() {
		words, err = c.exchange(ctx, word)
		close(done)
	}()
	worker.ProgressUntil(done) // others may be trying to reach this one
	if err != nil {
		return 0, "", err
	}
	for rank, word := range words {
		if len(word) > 0 {
			return rank, text.Clean(string(word)), nil
		}
	}
	return 0, "", nil
}

// hostLimit is how long a machine may not answer, as one without power does not.
const hostLimit = 8 * time.Second

// watchHosts has the control connections of ranks without shared memory end where the other machine does not answer for hostLimit: nothing
// else tells of that, as data does not go by TCP. A network that is interrupted for less than 6 s does no harm. Keep-alives cover a
// connection on which nothing is being sent, and TCP_USER_TIMEOUT one on which something is; what tune says against that does not hold
// here, as frames of control never fill a window.
func (c *connector) watchHosts() error {
	alive := net.KeepAliveConfig{Enable: true, Idle: 2 * time.Second, Interval: 2 * time.Second, Count: 3}
	for rank, r := range c.remotes {
		if r == nil || r.memory != nil {
			continue
		}
		err := r.control.SetKeepAliveConfig(alive)
		if raw, rawErr := r.control.SyscallConn(); rawErr == nil && err == nil {
			rawErr = raw.Control(func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(hostLimit.Milliseconds()))
			})
			err = cmp.Or(err, rawErr)
		}
		if err != nil {
			return fmt.Errorf("rank %d: set keep-alive: %w", rank, err)
		}
	}
	return nil
}
