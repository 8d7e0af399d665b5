package launch

import (
	"ddpbatch/mpi/launch/device"
)

// devices shares this machine's cores and GPUs among the agent's workers.
type devices struct {
	cfg  AgentConfig
	node *device.Node
	said map[string]bool // warnings: most concern all workers alike
}

func newDevices(c AgentConfig) (*devices, error) {
	node, err := device.This()
	return &devices{cfg: c, node: node, said: make(map[string]bool)}, err
}

// of plans for one worker. What cannot be right ends the run as a wrong command line does.
func (d *devices) of(p Place) (device.Plan, error) {
	c := d.cfg
	plan, err := d.node.Assign(device.Request{
		LocalRank: p.LocalRank, LocalWorldSize: p.LocalWorldSize,
		GPUs: c.GPUs, VirtualLocalRank: c.VirtualLocalRank, NUMA: c.NUMA, OMP: c.OMP,
		Builtin: c.Builtin, Task: len(c.Local) > 0, Scripted: c.RunDir != nil, Pretend: c.OneMachine,
		CPUsPerTask: c.CPUsPerTask, Lookup: c.lookup,
	})
	if err != nil {
		return plan, &startError{exitUsage, err}
	}
	for _, text := range plan.Warnings {
		if !d.said[text] {
			d.said[text] = true
			c.Log.Warn(text, "host", c.Host)
		}
	}
	return plan, nil
}

// lookup finds a variable of the workers' environment.
func (c AgentConfig) lookup(name string) (string, bool) {
	value := valueOf(c.Env, name)
	return value, value != "" || hasName(c.Env, name)
}
