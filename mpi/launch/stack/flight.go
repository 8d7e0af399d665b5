package stack

import (
	"encoding/json"
	"strings"
)

// flightLine holds the fields that are read of a line of a flight record (mpi.Comm.WriteFlight).
type flightLine struct {
	Call  string `json:"call"`
	Group string `json:"group"`
	State string `json:"state"`
}

// worldGroup is the number of the group of all ranks, which training uses. Background work, such as a save, uses other groups.
const worldGroup = "1"

// Flight adds to a Standing what a rank's flight record shows: the oldest call that runs, preferably in the group of all ranks, and
// the newest call that is over. A call that has failed did so when another rank was ended, and counts as running. Lines that cannot
// be read are skipped.
func (s Standing) Flight(text []byte) Standing {
	running, world := "", false
	for line := range strings.Lines(string(text)) {
		var l flightLine
		if json.Unmarshal([]byte(line), &l) != nil || l.Call == "" {
			continue
		}
		l.Call = l.Call[:min(len(l.Call), maxName)]
		switch {
		case (l.State == "running" || l.State == "failed") && (running == "" || !world && l.Group == worldGroup):
			running, world = l.Call, l.Group == worldGroup
		case l.State == "done":
			s.Last = l.Call
		}
	}
	if running != "" {
		s.Call = running
	}
	return s
}
