package watch

import (
	"bytes"
	"math"
	"strconv"
)

// MaxBeat is how many bytes of a heartbeat file are read.
const MaxBeat = 256

// The parts of a step, as indices.
const (
	Compute = iota // forward, backward and the optimizer
	Input          // waiting for the loader
	Comm           // waiting for other ranks
	Parts          // the number of parts
)

// partNames are the names of the parts in a heartbeat file.
var partNames = [Parts]string{"compute", "input", "comm"}

// Beat is the content of a heartbeat file: how many steps a worker has finished, and how its time since its start divides.
type Beat struct {
	Step  int64
	Spent [Parts]float64 // seconds; below 0: not given
}

// ParseBeat parses a heartbeat file: a step, and optionally seconds by name, as in "1200 input=12.5 compute=300.1 comm=40.2".
// Anything else is ignored. It returns false if the text does not begin with a step.
func ParseBeat(text []byte) (Beat, bool) {
	fields := bytes.Fields(text[:min(len(text), MaxBeat)])
	b := Beat{Spent: [Parts]float64{-1, -1, -1}}
	if len(fields) == 0 {
		return b, false
	}
	var err error
	if b.Step, err = strconv.ParseInt(string(fields[0]), 10, 64); err != nil || b.Step < 0 {
		return Beat{Spent: b.Spent}, false
	}
	for _, field := range fields[1:] {
		name, value, _ := bytes.Cut(field, []byte("="))
		seconds, err := strconv.ParseFloat(string(value), 64)
		for part, is := range partNames {
			if is == string(name) && err == nil && seconds >= 0 && seconds <= math.MaxInt32 {
				b.Spent[part] = seconds
			}
		}
	}
	return b, true
}

// AppendBeat appends b to text in the format that ParseBeat reads.
func AppendBeat(text []byte, b Beat) []byte {
	text = strconv.AppendInt(text, b.Step, 10)
	for part, name := range partNames {
		text = append(append(append(text, ' '), name...), '=')
		text = strconv.AppendFloat(text, b.Spent[part], 'f', 6, 64)
	}
	return text
}
