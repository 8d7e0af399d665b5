package main

import (
	"fmt"
	"slices"
	"strconv"

	"ddpbatch/internal/rundir"
	"ddpbatch/slurm/sim"
)

// progress is how far the run is, for faults that wait for it.
func (s *simulated) progress() (step int64, attempt int) {
	attempt, err := s.run.NewestAttempt()
	if err != nil {
		return 0, 0
	}
	if m, ok, err := s.run.LastMetrics(); err == nil && ok && m.Attempt == attempt {
		step = m.Step
	}
	return step, attempt
}

// eventFault is a fault in the run's ledger.
const eventFault = "fault"

// struck tells of a fault.
func (s *simulated) struck(f sim.Fault, what, node string) {
	s.say("fault %s: %s", f, what)
	attempt, _ := s.run.NewestAttempt()
	if node != "" {
		s.mu.Lock()
		s.lost = append(s.lost, node)
		s.mu.Unlock()
	}
	err := s.run.Append(rundir.Event{Time: s.e.Now(), Event: eventFault, Attempt: attempt, Node: node, Detail: f.Text + ": " + what})
	if err != nil {
		s.e.log().Warn("the fault is not in the run's ledger", "error", err)
	}
}

// tellLeft names the faults that never came.
func (s *simulated) tellLeft() {
	for _, f := range s.faults {
		s.say("fault %s did not strike: its moment never came", f)
	}
}

// say puts a line of simulate's own on the screen and into the job's log.
func (s *simulated) say(format string, args ...any) {
	s.out.write(fmt.Appendf(nil, "ddpbatch: "+format+"\n", args...), true, true)
}

// gone are the nodes that faults have taken.
func (s *simulated) gone() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lost)
}

// down are those of them that the job still has. Others were replaced, and Slurm is asked about the job's nodes alone.
func (s *simulated) down() []string {
	return slices.DeleteFunc(s.gone(), func(lost string) bool {
		return !slices.ContainsFunc(s.allocation.Nodes, func(n sim.Node) bool { return n.Name == lost })
	})
}

// replace gives the job other nodes for those that it is not to run on again, as a cluster with spare ones would.
func (s *simulated) replace(bad []string) error {
	nodes := slices.Clone(s.allocation.Nodes)
	for i, n := range nodes {
		if !slices.Contains(bad, n.Name) {
			continue
		}
		if s.used >= sim.MaxNodes {
			return fmt.Errorf("there is no node left for %s, which is gone", n.Name)
		}
		spare := sim.PretendNode(s.used)
		if s.pretend.names != "" {
			spare.Name = "spare" + strconv.Itoa(s.used)
		}
		if slices.ContainsFunc(s.pretend.faults, func(f sim.Fault) bool { return f.Kind == sim.Partition }) {
			spare = sim.WorldNode(spare, s.used)
		}
		s.used++
		nodes[i], s.allocation.Nodelist = spare, ""
		s.say("%s takes the place of %s", spare.Name, n.Name)
	}
	s.allocation.Nodes = nodes
	return nil
}
