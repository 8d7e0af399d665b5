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

// UCX says whether data goes through UCX.
type UCX int

const (
	UCXWhereItWorks UCX = iota // between ranks without shared memory, if there are several machines and every rank has UCX and a device
	UCXNever
	UCXAlways // between all ranks that do not share memory; a rank without UCX is an error
)

// offer is what a rank reports to the others about its UCX.
type offer struct {
	Why        string `json:",omitempty"` // why it cannot use UCX; empty if it can
	NoDevice   bool   `json:",omitempty"` // it cannot because it has no device
	Version    ucx.Version
	Transports string // the transports to use, and the link layer of its devices; they must be the same on both sides
	Address    []byte
}

// setUpRDMA makes links through UCX to the ranks that do not share memory with this one. It returns nil if data goes by TCP. All ranks come
// to the same decision. If other ranks may have sent to a worker, setUpRDMA leaves it until the process ends, as UCX must not destroy it.
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
			worker.CloseLinks(0) // it has no links
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

// between says, for logs, between which ranks UCX may carry data.
func (c *connector) between() string {
	if c.cfg.UCX == UCXAlways {
		return "between ranks"
	}
	return "between machines"
}

// spansMachines reports whether there are ranks on other machines. If so, every rank sees some.
func (c *connector) spansMachines() bool {
	for _, r := range c.remotes {
		if r != nil && !r.local {
			return true
		}
	}
	return false
}

// openUCX opens this rank's worker, if it can and should have one.
func (c *connector) openUCX() (*ucx.Worker, offer) {
	var chosen []ucx.Device
	if c.cfg.Encrypt {
		return nil, offer{Why: "mpi.encrypt is true, but UCX does not encrypt"}
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

// ownCores returns the cores on which this process may run.
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
			return nil, fmt.Errorf("rank %d: %w: read what it reports about UCX: %w", rank, ErrProtocol, err)
		}
		if o.Why == "" && len(o.Address) == 0 {
			return nil, fmt.Errorf("rank %d: %w: it reports UCX without an address", rank, ErrProtocol)
		}
		o.Why, o.Transports = text.Clean(o.Why), text.Clean(o.Transports)
	}
	return offers, nil
}

// misfit returns the first rank that cannot use UCX with the others, and why. If all can, why is empty.
func misfit(offers []offer) (rank int, why string) {
	first := offers[0]
	for rank, o := range offers {
		switch {
		case o.Why != "":
			return rank, o.Why
		case o.Version.Major != first.Version.Major || o.Version.Minor != first.Version.Minor:
			return rank, fmt.Sprintf("its UCX is %v, but that of rank 0 is %v: use the same version everywhere", o.Version, first.Version)
		case o.Transports != first.Transports:
			return rank, fmt.Sprintf("its UCX is to use %s, but that of rank 0 %s", o.Transports, first.Transports)
		}
	}
	return 0, ""
}

// withoutUCX logs why data goes by TCP. If UCX is required, it returns an error instead.
func (c *connector) withoutUCX(offers []offer, rank int, why string) error {
	if c.cfg.UCX == UCXAlways {
		return fmt.Errorf("use UCX: rank %d: %s", rank, why)
	}
	if c.cfg.Rank != 0 {
		return nil // rank 0 logs it
	}
	level := c.cfg.Log.Info
	for _, o := range offers {
		if !o.NoDevice { // this rank has a device, and the user may expect that it is used
			level = c.cfg.Log.Warn
		}
	}
	level("data "+c.between()+" goes by TCP and not through UCX", "network", network(c.cfg.Listen), "rank", rank, "why", why)
	return nil
}

// network names the interface that has an address, and says whether it is IP over InfiniBand, over which TCP is not RDMA.
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

// tryLimit is how long UCX may take to connect to another machine.
const tryLimit = 30 * time.Second

// connectUCX makes the links, and tries one of them: that to the next rank on another machine. Ranks of one machine try different ranks, if
// there are enough.
func (c *connector) connectUCX(ctx context.Context, worker *ucx.Worker, offers []offer) ([]*ucx.Link, error) {
	links := make([]*ucx.Link, len(c.remotes))
	lower := 0 // the number of lower ranks that share memory with this one
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

// compareVerdicts sends the result of connectUCX to the others, and returns the first rank on which it failed, and why.
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
	worker.ProgressUntil(done) // other ranks may be trying to connect to this one
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

// hostLimit is how long a machine may not answer, for example because it has no power.
const hostLimit = 8 * time.Second

// watchHosts makes the control connections to ranks without shared memory end if the other machine does not answer for hostLimit. Nothing
// else shows that, because data does not go by TCP. An interruption of the network of less than 6 s does no harm. Keep-alives cover a
// connection on which nothing is being sent, and TCP_USER_TIMEOUT covers one on which something is. The reason of tune against the latter
// does not apply here, because control frames never fill a window.
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
