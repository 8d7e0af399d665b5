package main

import (
	"errors"
	"strings"

	"ddpbatch/mpi/launch"
	"ddpbatch/slurm"
	"ddpbatch/slurm/pmi2"
)

// openExchange takes over the connection by which Slurm lets the tasks of a step tell each other a few words
// (srun --mpi=pmi2); nil where there is none. It is taken over even by an agent that is alone, so that workers do not inherit it.
func openExchange(e *env) (*pmi2.Client, error) {
	client, err := pmi2.Open(e.lookup)
	if errors.Is(err, pmi2.ErrNone) {
		return nil, nil
	}
	return client, err
}

// What agents tell each other must fit: a negative number is no uint.
const _ = uint(pmi2.MaxText - launch.MaxOffer)

// exchange lets agent 0 tell the others where it is, if each task of the step is an agent and all of them must come. By hand (no alloc)
// there are other agents than the step's tasks.
func exchange(client *pmi2.Client, alloc *slurm.Allocation, cfg *launch.AgentConfig) {
	if client != nil && alloc != nil && cfg.Count > 1 && (cfg.MinCount == 0 || cfg.MinCount == cfg.Count) &&
		client.Size() == cfg.Count && client.Rank() == alloc.ProcID && (client.Rank() == 0) == (cfg.Index == 0) {
		cfg.Exchange = client.FromZero
	}
}

// withoutPMI is an environment without what Slurm says of a connection that only the agent has.
func withoutPMI(environ []string) []string {
	var kept []string
	for _, entry := range environ {
		if !strings.HasPrefix(entry, "PMI_") {
			kept = append(kept, entry)
		}
	}
	return kept
}
