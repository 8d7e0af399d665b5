package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	"ddpbatch/mpi/store"
)

// services are the stores that agent 0 serves to the workers of one round.
type services struct{ servers []*store.Server }

func (s *services) close() error {
	var errs []error
	for _, server := range s.servers {
		errs = append(errs, server.Close())
	}
	s.servers = nil
	return errors.Join(errs...)
}

// serveWorkers begins the services of a round and settles its ports. Those of the round before have ended.
func (m *meeting) serveWorkers(p *plan) error {
	c := m.cfg
	if c.Builtin {
		l, err := listenFirst(m.hosts(c), Ports(fmt.Sprint(c.RunID, "/workers/", p.Attempt, "/", p.Round), 256))
		if err != nil {
			return fmt.Errorf("serve a store for the workers: %w", err)
		}
		p.WorkerPort = portOf(l)
		m.serve(l, store.ServerConfig{Secret: c.Secret, Binding: c.workerBinding(p.Attempt), Log: c.Log})
	}
	if c.TorchStore {
		return m.serveTorch(p)
	}
	port, err := m.masterPort(p, freePort)
	p.MasterPort = port
	return err
}

// serveTorch serves PyTorch's TCPStore at MASTER_PORT. Its wire knows no proof, so it is on the job's interface
// alone, whose address is the workers' MASTER_ADDR then: a name may mean another one on this machine than on the others.
func (m *meeting) serveTorch(p *plan) error {
	var l net.Listener
	port, err := m.masterPort(p, func(ports []int) (_ int, err error) {
		if l, err = listenFirst([]string{p.Listen}, ports); err != nil {
			return 0, err
		}
		return portOf(l), nil
	})
	if err != nil {
		return err
	}
	p.MasterAddr, p.MasterPort = p.Listen, port
	m.serve(l, store.ServerConfig{
		Secret: m.cfg.Secret, Binding: m.cfg.workerBinding(p.Attempt), Torch: true, TorchPrefix: "torch/", Log: m.cfg.Log,
	})
	return nil
}

func (m *meeting) serve(l net.Listener, cfg store.ServerConfig) {
	m.services.servers = append(m.services.servers, store.Serve(l, cfg))
}

// masterPort settles what the workers of a round get as MASTER_PORT: the one that was given, or one that is free now and was
// no round's before, since what is left of the workers before may still hold or dial that.
func (m *meeting) masterPort(p *plan, take func(ports []int) (int, error)) (int, error) {
	c := m.cfg
	ports := []int{c.MasterPort}
	if c.MasterPort == 0 {
		// No other agent on this machine has the same nonce.
		ports = Ports(fmt.Sprint(c.RunID, m.nonce, p.Round), 256)
	}
	if p.Round == 0 && c.MasterPort == 0 {
		ports = append(slices.Clone(c.Ports), ports...)
	}
	if c.MasterPort != 0 && !c.TorchStore {
		return c.MasterPort, c.checkMasterPort() // once more: time has passed since it was claimed
	}
	var fresh []int
	for _, port := range ports {
		if !m.ports[port] || port == c.MasterPort {
			fresh = append(fresh, port)
		}
	}
	port, err := take(fresh)
	switch {
	case err != nil && c.MasterPort != 0:
		return 0, c.masterPortTaken(err)
	case err != nil:
		return 0, fmt.Errorf("find a MASTER_PORT for the workers: %w", err)
	}
	m.ports[port] = true
	return port, nil
}

// layRound makes the plan of a round, of all agents that have a number and live, and begins its services.
func (m *meeting) layRound(round, attempt int) (*plan, error) {
	p := &plan{
		Round: round, Attempt: attempt, Count: m.cfg.Count, Host: m.cfg.Host,
		Listen: m.roster.address(cmp.Or(m.hosts(m.cfg)[0], loopback)), Deadline: m.deadline(),
	}
	m.listen, m.reached = p.Listen, m.roster.address("")
	joins := []join{m.cfg.join()}
	p.guests = m.roster.begin()
	for _, g := range p.guests {
		joins = append(joins, g.join)
	}
	if err := p.lay(joins); err != nil {
		return nil, err
	}
	if err := m.services.close(); err != nil {
		return nil, err
	}
	return p, m.serveWorkers(p)
}

// publish gives the plan to every agent that is in it.
func (m *meeting) publish(ctx context.Context, p *plan) error {
	if err := setJSON(ctx, m.store, fmt.Sprintf(keyPlan, p.Round), p); err != nil {
		return fmt.Errorf("publish the plan of the workers: %w", err)
	}
	for _, g := range p.guests {
		m.answer(g, seat{Index: g.index, Round: p.Round})
	}
	return nil
}
