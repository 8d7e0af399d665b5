package stack

import (
	"encoding/json"
	"strings"
)

// flightLine is what is read of a line of a flight record (mpi.Comm.WriteFlight).
type flightLine struct {
	Call  string `json:"call"`
	Group string `json:"group"`
	State string `json:"state"`
}

// worldGroup is the number of the group of all ranks, in which training is. What runs in the background, such as a save, has others.
const worldGroup = "1"

// Flight adds to a Standing what a rank's flight record says: the oldest call that runs, in the group of all ranks if there is one, and the
// newest that is over. One that has failed did so when another rank was ended, and counts as one that runs. Lines that cannot be read
// are passed over.
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
