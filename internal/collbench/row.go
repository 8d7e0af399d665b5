package collbench

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
)

// result is one row of a bench, with nccl-tests' columns.
type result struct {
	Size      int64   `json:"size"`  // bytes; if there are blocks, of all ranks' blocks
	Count     int64   `json:"count"` // elements; if there are blocks, of one block
	Type      string  `json:"type"`
	Redop     string  `json:"redop"`   // the reduce operation, or "none"; for the store, its operation
	Time      float64 `json:"time_us"` // the median over calls
	Min       float64 `json:"min_us"`
	Avg       float64 `json:"avg_us"`
	Max       float64 `json:"max_us"`
	AlgBW     float64 `json:"algbw"` // 10^9 bytes per second: size divided by time
	BusBW     float64 `json:"busbw"` // algbw times the collective's factor
	Wrong     int64   `json:"wrong"` // number of wrong elements, over all ranks
	Algorithm string  `json:"algorithm"`
	Transport string  `json:"transport"`
	Encrypted bool    `json:"encrypted,omitempty"` // data between ranks that do not share memory was encrypted

	// Only with --explain.
	Predicted float64 `json:"predicted_us,omitempty"` // 0: the model has no prediction
	Chosen    bool    `json:"chosen,omitempty"`       // a call that does not name an algorithm gets this one
}

// withTimes fills in the times of calls among n ranks, and the bandwidths that follow from their median.
func (r result) withTimes(t callTimes, c *collective, n int) result {
	r.Time, r.Min, r.Avg, r.Max = millionths(t.median), millionths(t.least), millionths(t.mean), millionths(t.most)
	if t.median > 0 {
		r.AlgBW = float64(r.Size) / t.median / 1e3
	}
	r.BusBW = r.AlgBW
	if c.bus != nil {
		r.BusBW *= c.bus(float64(n))
	}
	r.AlgBW, r.BusBW = millionths(r.AlgBW), millionths(r.BusBW)
	return r
}

// millionths rounds to the last digits that mean something: picoseconds and bytes.
func millionths(x float64) float64 { return math.Round(x*1e6) / 1e6 }

const columns = "#%12s  %12s  %8s  %6s  %8s  %8s  %8s  %8s  %7s  %7s  %7s\n"

// printer prints rows as they come.
type printer struct {
	w       io.Writer
	json    bool
	explain bool
	err     error // the first error
}

// heading prints the settings that the rows do not show, and the names of their columns. network is the result of Comm.Network.
func (p *printer) heading(version string, o Options, ranks int, network string) {
	if p.json {
		return
	}
	p.line("# ddpbatch %s: %s, %d ranks%s\n", version, o.collective.name, ranks, o.settings())
	if network != "" {
		p.line("# %s\n", network)
	}
	switch {
	case p.explain:
		p.line("#%12s  %-20s  %10s  %10s  %7s  %7s\n", "size", "algorithm", "predicted", "measured", "busbw", "#wrong")
		p.line("#%12s  %-20s  %10s  %10s  %7s  %7s\n", "(B)", "(* is chosen)", "(us)", "(us)", "(GB/s)", "")
	default:
		p.line(columns, "size", "count", "type", "redop", "time", "min", "avg", "max", "algbw", "busbw", "#wrong")
		p.line(columns, "(B)", "(elements)", "", "", "(us)", "(us)", "(us)", "(us)", "(GB/s)", "(GB/s)", "")
	}
}

func (p *printer) row(r result) {
	if p.json {
		text, err := json.Marshal(r)
		if err != nil {
			p.fail(err)
			return
		}
		p.line("%s\n", text)
		return
	}
	if p.explain {
		name, predicted := r.Algorithm, "-"
		if r.Chosen {
			name = "* " + name
		}
		if r.Predicted > 0 {
			predicted = microseconds(r.Predicted)
		}
		p.line(" %12d  %-20s  %10s  %10s  %7.2f  %7d\n", r.Size, name, predicted, microseconds(r.Time), r.BusBW, r.Wrong)
		return
	}
	p.line(" %12d  %12d  %8s  %6s  %8s  %8s  %8s  %8s  %7.2f  %7.2f  %7d\n", r.Size, r.Count, r.Type, r.Redop,
		microseconds(r.Time), microseconds(r.Min), microseconds(r.Avg), microseconds(r.Max), r.AlgBW, r.BusBW, r.Wrong)
}

func (p *printer) line(format string, args ...any) {
	_, err := fmt.Fprintf(p.w, format, args...)
	p.fail(err)
}

func (p *printer) fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

// microseconds formats a time with at least three digits.
func microseconds(us float64) string {
	switch {
	case us < 10:
		return fmt.Sprintf("%.3f", us)
	case us < 1000:
		return fmt.Sprintf("%.1f", us)
	}
	return fmt.Sprintf("%.0f", us)
}
