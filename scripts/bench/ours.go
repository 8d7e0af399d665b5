package main

import (
	"encoding/json"
	"os/exec"
	"strconv"
	"time"
)

// ours is ddpbatch; with alloc, on buffers that comm.Alloc gives out.
func ours(program, version string, alloc bool) side {
	s := side{
		name: "ddpbatch", ours: true, version: version, startup: 500 * time.Millisecond,
		takes: func(setting) bool { return true },
		parse: parseOurs,
	}
	if alloc {
		s.name = "ddpbatch+alloc"
		s.takes = func(s setting) bool { return s.Collective == "allreduce" }
	}
	s.commands = func(o options, s setting) []*exec.Cmd {
		args := []string{
			"bench", s.Collective, "-n", strconv.Itoa(s.Ranks), "--transport", s.Transport, "--json",
			"-b", strconv.FormatInt(o.begin, 10), "-e", strconv.FormatInt(o.end, 10), "-f", strconv.FormatInt(o.factor, 10),
			"--budget", o.budget.String(),
		}
		if alloc {
			args = append(args, "--alloc")
		}
		if s.Collective == "startup" {
			args = append(args, "--iters", "1")
		}
		return []*exec.Cmd{exec.Command(program, args...)}
	}
	return s
}

// parseOurs reads an object of `ddpbatch bench --json`.
func parseOurs(line string) (sample, bool) {
	var row struct {
		Size  *int64   `json:"size"`
		Time  *float64 `json:"time_us"`
		Wrong int64    `json:"wrong"`
	}
	if err := json.Unmarshal([]byte(line), &row); err != nil || row.Size == nil || row.Time == nil {
		return sample{}, false
	}
	return sample{*row.Size, *row.Time, row.Wrong}, true
}
