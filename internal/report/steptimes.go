package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"ddpbatch/internal/rundir"
)

const (
	maxWindows = 100 // columns of the picture
	maxRows    = 64
	maxSlow    = 20
)

// StepTimes holds the durations of the ranks' steps, in windows of time.
type StepTimes struct {
	Ranks   int       `json:"ranks"`
	Windows []Window  `json:"windows"`
	Rows    []RankRow `json:"rows"`       // one row per rank, or, for many ranks, per host or group of hosts
	Slow    []Slow    `json:"stragglers"` // slowest first
	Busy    bool      `json:"busy"`       // a step counts without its waiting for other ranks, if that is known
}

// Window holds the seconds per step of all ranks in one or several consecutive windows.
type Window struct {
	Time    time.Time `json:"time"` // its end
	Attempt int       `json:"attempt"`
	Step    int64     `json:"step"`
	Median  float64   `json:"median_s"`
	Fastest float64   `json:"fastest_s"`
	Slowest float64   `json:"slowest_s"`
}

// RankRow says how slow one or several ranks were in each window.
type RankRow struct {
	First int    `json:"first_rank"`
	Last  int    `json:"last_rank"`
	Host  string `json:"host"` // of the first rank
	// Times is relative to the median of all ranks, which is 1; of several ranks or windows it is the largest; 0 if not known.
	Times []float64 `json:"times"`
}

// Slow is a straggler.
type Slow struct {
	rundir.Straggler
	Windows int   `json:"windows"` // number of windows in which it was one
	Of      int   `json:"of"`      // number of all windows
	First   int64 `json:"first_step"`
	Last    int64 `json:"last_step"`
}

func (d *Data) readSteps(run *rundir.Dir) {
	lines, err := run.StepTimes(math.MaxInt32)
	d.fault(err)
	if len(lines) > 0 {
		d.Steps = stepTimesOf(lines)
	}
}

// stepTimesOf thins the lines of steps.jsonl.
func stepTimesOf(lines []rundir.StepTimes) *StepTimes {
	s := &StepTimes{Slow: slowIn(lines)}
	hosts := []string(nil)
	for _, line := range lines {
		s.Ranks = max(s.Ranks, len(line.StepS))
		s.Busy = s.Busy || line.CommS != nil
		if line.Hosts != nil {
			hosts = line.Hosts
		}
	}
	s.Rows = rowsOf(s.Ranks, hosts)
	each := (len(lines) + maxWindows - 1) / maxWindows
	for at := 0; at < len(lines); at += each {
		s.addWindow(lines[at:min(at+each, len(lines))])
	}
	return s
}

// rowsOf distributes ranks to rows: one each, or as many per row as keeps the number of rows small. Ranks of one host stay together if
// there are not too many hosts.
func rowsOf(ranks int, hosts []string) (rows []RankRow) {
	host := func(rank int) string {
		if rank < len(hosts) {
			return shown(hosts[rank])
		}
		return ""
	}
	for rank := range ranks {
		n := len(rows)
		if ranks > maxRows && n > 0 && host(rank) != "" && rows[n-1].Host == host(rank) {
			rows[n-1].Last = rank
			continue
		}
		rows = append(rows, RankRow{First: rank, Last: rank, Host: host(rank)})
	}
	if len(rows) <= maxRows {
		return rows
	}
	each := (len(rows) + maxRows - 1) / maxRows
	var fewer []RankRow
	for at := 0; at < len(rows); at += each {
		row := rows[at]
		row.Last = rows[min(at+each, len(rows))-1].Last
		fewer = append(fewer, row)
	}
	return fewer
}

// addWindow adds one window for several lines.
func (s *StepTimes) addWindow(lines []rundir.StepTimes) {
	newest := lines[len(lines)-1]
	w := Window{Time: newest.Time, Attempt: newest.Attempt, Step: newest.Step, Fastest: math.Inf(1)}
	slowest := make([]float64, s.Ranks) // the line with the largest median
	for _, line := range lines {
		median := medianOf(line.StepS)
		w.Median += median / float64(len(lines))
		busy := busyTimes(line)
		usual := medianOf(busy)
		for rank, seconds := range line.StepS {
			if seconds > 0 {
				w.Fastest, w.Slowest = min(w.Fastest, seconds), max(w.Slowest, seconds)
			}
			if usual > 0 {
				slowest[rank] = max(slowest[rank], busy[rank]/usual)
			}
		}
	}
	if math.IsInf(w.Fastest, 1) {
		w.Fastest = 0
	}
	s.Windows = append(s.Windows, w)
	for i := range s.Rows {
		row := &s.Rows[i]
		times := slices.Max(slowest[row.First : row.Last+1])
		row.Times = append(row.Times, math.Round(min(times, 1e6)*1000)/1000)
	}
}

// busyTimes returns the ranks' step times without their waiting for each other, because all ranks wait for a straggler.
func busyTimes(line rundir.StepTimes) []float64 {
	if line.CommS == nil {
		return line.StepS
	}
	busy := make([]float64, len(line.StepS))
	for rank, seconds := range line.StepS {
		busy[rank] = max(0, seconds-line.CommS[rank])
	}
	return busy
}

// medianOf returns the median of the known values, or 0 if there are none.
func medianOf(values []float64) float64 {
	var known []float64
	for _, value := range values {
		if value > 0 {
			known = append(known, value)
		}
	}
	if len(known) == 0 {
		return 0
	}
	slices.Sort(known)
	return known[(len(known)-1)/2]
}

// slowIn returns the stragglers that lines name.
func slowIn(lines []rundir.StepTimes) []Slow {
	type key struct {
		rank int
		host string
	}
	all := map[key]*Slow{}
	for _, line := range lines {
		for _, one := range line.Stragglers {
			k := key{one.Rank, one.Host}
			if all[k] == nil {
				if len(all) >= 1000 {
					continue
				}
				all[k] = &Slow{Straggler: one, Of: len(lines), First: line.Step}
			}
			s := all[k]
			s.Windows++
			s.Last = line.Step
			if one.Times > s.Times {
				s.Straggler = one
			}
		}
	}
	slow := []Slow{}
	for _, s := range all {
		s.Host, s.Part = shown(s.Host), shown(s.Part)
		slow = append(slow, *s)
	}
	slices.SortFunc(slow, func(a, b Slow) int {
		return cmp.Or(cmp.Compare(b.Windows, a.Windows), cmp.Compare(b.Times, a.Times), cmp.Compare(a.Rank, b.Rank))
	})
	return slow[:min(len(slow), maxSlow)]
}

// String says which rank was slow, and when.
func (s Slow) String() string {
	return fmt.Sprintf("%s, in %d of %d windows, from step %s to %s", s.Straggler, s.Windows, s.Of, commas(s.First), commas(s.Last))
}
