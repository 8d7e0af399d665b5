package launch

import (
	"strings"

	"ddpbatch/mpi/launch/output"
)

// logs are the files of one worker in one round, by this process's paths; "": none.
type logs struct {
	output.Paths
	errorFile string // TORCHELASTIC_ERROR_FILE
	flight    string // DDPBATCH_FLIGHT_FILE
	heartbeat string // DDPBATCH_HEARTBEAT_FILE
	stacks    string // see stacks
}

// openLogDir makes the folder that --log-dir asks for; nil where it does not.
func (c AgentConfig) openLogDir() (*output.LogDir, error) {
	if c.LogDir == "" {
		return nil, nil
	}
	return output.NewLogDir(c.LogDir, c.RunID)
}

// logsOf says where a worker's files go: below --log-dir, or in the run directory, where there is one.
func (r *round) logsOf(p Place) (l logs, err error) {
	c := r.cfg
	if c.RunDir != nil {
		path := func(stream string) string { return c.RunDir.LogPath(c.Attempt, c.Host, p.Rank, stream) }
		l = logs{Paths: output.Paths{Out: path("out"), Err: path("err")}, errorFile: path("error.json"), flight: path("flight.jsonl")}
	}
	if r.m.logDir != nil {
		l.Paths, l.errorFile, err = r.m.logDir.Worker(r.plan.Round, p.LocalRank)
	}
	l.heartbeat, l.stacks = r.heartbeatOf(p), r.stacksOf(p, l)
	if l.errorFile == "" {
		l.errorFile = r.privateFile(p, "error.json") // which is read before the folder is removed; stacks are for people
	}
	return l, err
}

// filtered says where the lines of all of this agent's workers go that the filters let through.
func (r *round) filtered() (output.Paths, error) {
	c := r.cfg
	switch {
	case len(c.Output.OutFilters)+len(c.Output.ErrFilters) == 0:
		return output.Paths{}, nil
	case r.m.logDir != nil:
		return r.m.logDir.Filtered(r.plan.Round)
	case c.RunDir == nil:
		return output.Paths{}, nil
	}
	path := func(stream string) string {
		return strings.TrimSuffix(c.RunDir.LogPath(c.Attempt, c.Host, 0, stream), "0."+stream) + "filtered." + stream
	}
	return output.Paths{Out: path("out"), Err: path("err")}, nil
}

// openOutput begins to carry the workers' output of this round.
func (r *round) openOutput() (*output.Mux, error) {
	paths, err := r.filtered()
	if err != nil {
		return nil, err
	}
	c := r.cfg
	if c.Output.PrefixSeveral && r.plan.World == 1 {
		c.Output.Prefix = ""
	}
	return output.NewMux(c.Output, output.To{Stdout: c.Stdout, Stderr: c.Stderr, Filtered: paths}, c.Log)
}
