package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"

	"ddpbatch/mpi/launch/blame"
	"ddpbatch/mpi/store"
)

// services are what agent 0 has for the workers of one round.
type services struct {
	servers []*store.Server // that they meet in
	claim   io.Closer       // of the MASTER_PORT that was chosen for them; nil: they were given one
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

// serveWorkers begins the services of a round and settles its ports. Those of the round before have ended.
func (m *meeting) serveWorkers(p *plan) error {
	c := m.cfg
	if c.Builtin {
		ports := Ports(fmt.Sprint(c.RunID, "/workers/", p.Attempt, "/", p.Round), 256)
		l, err := listenFirst(m.hosts(c), append(ports, anyPort...))
		if err != nil {
			return fmt.Errorf("serve a store for the workers: %w", err)
		}
		p.WorkerPort = portOf(l)
		m.serve(l, store.ServerConfig{Secret: c.Secret, Binding: c.workerBinding(p.Attempt), Log: c.Log})
	}
	if c.TorchStore {
		return m.serveTorch(p)
	}
	l, err := m.listenAtMasterPort(p, c.masterHost())
	if err != nil {
		return err
	}
	p.MasterPort = portOf(l)
	return l.Close() // the worker of rank 0 is to bind it
}

// serveTorch serves PyTorch's TCPStore at MASTER_PORT. Its wire knows no proof, so it is on the job's interface
// alone, whose address is the workers' MASTER_ADDR then: a name may mean another one on this machine than on the others.
func (m *meeting) serveTorch(p *plan) error {
	l, err := m.listenAtMasterPort(p, p.Listen)
	if err != nil {
		return err
	}
	p.TorchStore, p.MasterAddr, p.MasterPort = true, p.Listen, portOf(l)
	m.serve(l, store.ServerConfig{
		Secret: m.cfg.Secret, Binding: m.cfg.workerBinding(p.Attempt), Torch: true, TorchPrefix: "torch/", Log: m.cfg.Log,
	})
	return nil
}

// hint is for a rank 0 that wanted to serve at MASTER_PORT itself, where the agent serves PyTorch's store.
func (r *round) hint(d blame.Death) string {
	if !r.plan.TorchStore || d.Rank != 0 || !d.PortTaken() {
		return ""
	}
	return fmt.Sprintf("if it was to listen on MASTER_PORT (%d) itself, pass --torch-store=false (launch.torch_store = false in a job): "+
		"ddpbatch serves PyTorch's store there", r.plan.MasterPort)
}

func (m *meeting) serve(l net.Listener, cfg store.ServerConfig) {
	m.services.servers = append(m.services.servers, store.Serve(l, cfg))
}

// listenAtMasterPort listens on what the workers of a round get as MASTER_PORT: the port that was given, or one that is free now and was
// no round's before, since what is left of the workers before may still hold or dial that. It is claimed until the round ends.
func (m *meeting) listenAtMasterPort(p *plan, host string) (net.Listener, error) {
	c := m.cfg
	if c.MasterPort != 0 { // claimed for the whole run
		l, err := listenOn([]string{host}, c.MasterPort)
		if err != nil {
			return nil, c.masterPortTaken(err)
		}
		return l, nil
	}
	if !c.TorchStore {
		host = "" // what other programs bind is free, whatever the address
	}
	var ports []int
	if p.Round == 0 {
		ports = slices.Clone(c.Ports)
	}
	// No other agent on this machine has the same nonce.
	ports = append(ports, Ports(fmt.Sprint(c.RunID, m.nonce, p.Round), 256)...)
	ports = slices.DeleteFunc(ports, func(port int) bool { return m.ports[port] })
	l, claim, err := takePort([]string{host}, append(ports, anyPort...))
	if err != nil {
		return nil, fmt.Errorf("find a MASTER_PORT for the workers: %w", err)
	}
	m.services.claim, m.ports[portOf(l)] = claim, true
	return l, nil
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
