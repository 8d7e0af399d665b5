package rendezvous

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"

	"ddpbatch/mpi/store"
)

// services are what agent 0 provides for the workers of one round.
type services struct {
	servers []*store.Server // the stores in which they meet
	claim   io.Closer       // of the MASTER_PORT that was chosen for them; nil: the user gave one
}

func (s *services) close() error {
	var errs []error
	for _, server := range s.servers {
		errs = append(errs, server.Close())
	}
	if s.claim != nil {
		errs = append(errs, s.claim.Close())
	}
	*s = services{}
	return errors.Join(errs...)
}

// serveWorkers begins the services of a round and decides its ports. The services of the round before have ended.
func (r *Rendezvous) serveWorkers(lay *Layout) error {
	c := r.cfg
	if c.Builtin {
		ports := c.Ranges.Ports(fmt.Sprint(c.RunID, "/workers/", lay.Attempt, "/", lay.Round), 256)
		l, err := listenFirst(r.hosts(c), append(ports, anyPort...))
		if err != nil {
			return fmt.Errorf("serve a store for the workers: %w", err)
		}
		lay.WorkerPort = l.port()
		r.serve(l, store.ServerConfig{Secret: c.Secret, Binding: c.workerBinding(lay.Attempt), Log: c.Log})
	}
	if c.TorchStore {
		return r.serveTorch(lay)
	}
	l, err := r.listenAtMasterPort(lay, c.masterHost())
	if err != nil {
		return err
	}
	lay.MasterPort = l.port()
	return l.close() // the worker of rank 0 is to bind it
}

// serveTorch serves PyTorch's TCPStore at MASTER_PORT. Its protocol has no means of proof, so it is served on the job's interface
// only. That interface's address is the workers' MASTER_ADDR then: a name may resolve to another address on this machine than on
// the others.
func (r *Rendezvous) serveTorch(lay *Layout) error {
	l, err := r.listenAtMasterPort(lay, lay.Listen)
	if err != nil {
		return err
	}
	lay.TorchStore, lay.MasterAddr, lay.MasterPort = true, lay.Listen, l.port()
	r.serve(l, store.ServerConfig{
		Secret: r.cfg.Secret, Binding: r.cfg.workerBinding(lay.Attempt), Torch: true, TorchPrefix: "torch/", Log: r.cfg.Log,
	})
	return nil
}

func (r *Rendezvous) serve(l listeners, cfg store.ServerConfig) {
	r.services.servers = append(r.services.servers, store.ServeAll(l, cfg))
}

// listenAtMasterPort listens on what the workers of a round get as MASTER_PORT: the given port, or one that is free now and that no
// round had before, since workers left over from the round before may still hold or dial that one. The port stays claimed until the
// round ends.
func (r *Rendezvous) listenAtMasterPort(lay *Layout, host string) (listeners, error) {
	c := r.cfg
	if c.MasterPort != 0 { // claimed for the whole run
		l, err := listenOn([]string{host}, c.MasterPort)
		if err != nil {
			return nil, c.masterPortTaken(err)
		}
		return l, nil
	}
	if !c.TorchStore {
		host = "" // a worker may bind it at any address
	}
	var ports []int
	if lay.Round == 0 {
		ports = slices.Clone(c.Ports)
	}
	// No other agent on this machine has the same nonce.
	ports = append(ports, c.Ranges.Ports(fmt.Sprint(c.RunID, r.nonce, lay.Round), 256)...)
	ports = slices.DeleteFunc(ports, func(port int) bool { return r.ports[port] })
	l, claim, err := takePort([]string{host}, append(ports, anyPort...))
	if err != nil {
		return nil, fmt.Errorf("find a MASTER_PORT for the workers: %w", err)
	}
	r.services.claim, r.ports[l.port()] = claim, true
	return l, nil
}

// claimMasterPort holds the given MASTER_PORT for as long as the run lasts. It returns nil if no port was given.
func (c Config) claimMasterPort() (io.Closer, error) {
	if c.MasterPort == 0 {
		return nil, nil
	}
	claim, err := claimPort(c.masterHost(), c.MasterPort)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("the workers' MASTER_PORT is to be %d, which another run on this machine was given, too: "+
			"give each run its own --master-port, or, on one node or under Slurm, leave it out, and a free one is taken", c.MasterPort)
	case err != nil:
		return nil, err
	}
	if c.TorchStore { // it listens at one address, see serveTorch
		return claim, nil
	}
	l, err := listenOn([]string{c.masterHost()}, c.MasterPort)
	if err != nil {
		return nil, errors.Join(c.masterPortTaken(err), claim.Close())
	}
	return claim, l.close()
}

func (c Config) masterPortTaken(err error) error {
	return fmt.Errorf("the workers' MASTER_PORT is to be %d, which cannot be listened on (%w): "+
		"end the program that has it (ss -tanp shows which), or give another --master-port", c.MasterPort, err)
}

// masterHost is where the worker of rank 0 may bind MASTER_PORT. Usually that is all addresses, whatever MASTER_ADDR says; each
// simulated node of one machine has its own.
func (c Config) masterHost() string {
	if c.OneMachine {
		return c.MasterAddr
	}
	return ""
}
