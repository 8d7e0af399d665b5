// Command model compares what `ddpbatch bench --explain` predicts for every algorithm with what it measures. scripts/bench-model builds and
// starts it, in the root of the repository.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"

	"ddpbatch/scripts/bench/internal/command"
	"ddpbatch/scripts/bench/internal/paired"
	"ddpbatch/scripts/bench/internal/processes"
	"ddpbatch/scripts/bench/internal/report"
	"ddpbatch/scripts/bench/internal/stats"
	"ddpbatch/scripts/bench/internal/tools"
)

var bench = command.Program[options]{Name: "bench-model", Parse: parseOptions, Do: run}

func main() { bench.Main() }

// options are the options of the command line.
type options struct {
	command.Common
	collectives, transports   []string
	ranks                     []int
	begin, end, times, budget string // as `ddpbatch bench` reads them
}

// knownCollectives are those with a choice of algorithms.
var knownCollectives = []string{
	"allreduce", "reduce", "reducescatter", "reducescatterv", "scan", "exscan", "broadcast", "allgather", "allgatherv", "gather", "scatter",
	"alltoall", "gatherv", "scatterv", "alltoallv", "barrier",
}

const usageText = `What ddpbatch predicts that each algorithm of a collective takes, beside what it takes.

  ./scripts/bench-model --quick
  ./scripts/bench-model --collective broadcast,reduce --transport tcp --ranks 2,4 --json model.json >model.md

Tables are Markdown, on standard output; progress goes to standard error.
needs: Go

`

func parseOptions(args []string, stderr io.Writer) (o options, err error) {
	f := command.NewFlags(&o.Common, usageText, ", a quarter of the time for each size", map[string]string{"budget": "5ms"})
	f.TakeProgram()
	f.Words(&o.collectives, "collective", "all", knownCollectives, ", or all")
	f.Words(&o.transports, "transport", "shm,tcp", []string{"shm", "tcp"}, "")
	f.Numbers(&o.ranks, "ranks", "2", 2, 256, "numbers of ranks")
	f.StringVar(&o.begin, "b", "128", "smallest `SIZE`")
	f.StringVar(&o.end, "e", "32M", "largest `SIZE`")
	f.StringVar(&o.times, "f", "64", "from one size to the next, `TIMES`")
	f.StringVar(&o.budget, "budget", "20ms", "`TIME` for the calls of one size")
	return o, f.Parse(args, stderr)
}

func run(ctx context.Context, o options, dir string, stdout, stderr io.Writer) error {
	program, version, err := tools.Ddpbatch(ctx, dir, o.Program)
	if err != nil {
		return err
	}
	h := report.NewHeader(fmt.Sprintf(method, o.Launches))
	h.About = []string{version}
	h.Print(stdout)
	tables := o.tables()
	err = paired.InTurn(ctx, "all", o.Launches, len(tables), stderr, func(turn, side int) error {
		return tables[side].launch(ctx, o, program, turn)
	})
	if err != nil {
		return err
	}
	for _, t := range tables {
		t.print(stdout)
	}
	for _, transport := range o.transports {
		fmt.Fprintf(stdout, "\n%s: %s\n", transport, scoreOf(tables, transport))
	}
	return o.WriteJSON(tables)
}

const method = `
Times are microseconds, of ddpbatch bench --explain: medians over %d launches, as is the ratio, predicted / measured, which is taken
launch by launch, as each launch fits its model anew. *: the algorithm that a call gets that names none. -: the model says nothing of it.`

// table holds the results for one setting.
type table struct {
	Collective string `json:"collective"`
	Transport  string `json:"transport"`
	Ranks      int    `json:"ranks"`
	Rows       []*row `json:"rows"`
}

// row is one algorithm at one size.
type row struct {
	Size      int64         `json:"size"`
	Algorithm string        `json:"algorithm"`
	Chosen    int           `json:"chosen"` // number of launches in which it was chosen
	Predicted stats.Samples `json:"predicted_us"`
	Measured  stats.Samples `json:"measured_us"`
}

func (o options) tables() (all []*table) {
	for _, transport := range o.transports {
		for _, ranks := range o.ranks {
			for _, collective := range o.collectives {
				all = append(all, &table{Collective: collective, Transport: transport, Ranks: ranks})
			}
		}
	}
	return all
}

// launch measures all rows once.
func (t *table) launch(ctx context.Context, o options, program string, turn int) error {
	said, _, err := processes.Run(ctx, exec.Command(program, "bench", t.Collective, "--explain", "--json", "-n", strconv.Itoa(t.Ranks),
		"--transport", t.Transport, "--budget", o.budget, "-b", o.begin, "-e", o.end, "-f", o.times))
	if err != nil {
		return fmt.Errorf("%s over %s: %w", t.Collective, t.Transport, err)
	}
	for line := range strings.Lines(said) {
		if err := t.add(line, turn, o.Launches); err != nil {
			return err
		}
	}
	return nil
}

// add adds a row of a launch.
func (t *table) add(line string, turn, launches int) error {
	var got struct {
		Size      int64   `json:"size"`
		Algorithm string  `json:"algorithm"`
		Chosen    bool    `json:"chosen"`
		Predicted float64 `json:"predicted_us"`
		Measured  float64 `json:"time_us"`
	}
	if err := json.Unmarshal([]byte(line), &got); err != nil {
		return fmt.Errorf("%q is not a row of ddpbatch bench: %w", line, err)
	}
	r := t.row(got.Size, got.Algorithm, launches)
	r.Measured[turn] = got.Measured
	if got.Predicted > 0 {
		r.Predicted[turn] = got.Predicted
	}
	if got.Chosen {
		r.Chosen++
	}
	return nil
}

func (t *table) row(size int64, algorithm string, launches int) *row {
	for _, r := range t.Rows {
		if r.Size == size && r.Algorithm == algorithm {
			return r
		}
	}
	r := &row{Size: size, Algorithm: algorithm, Predicted: paired.Missing(launches), Measured: paired.Missing(launches)}
	t.Rows = append(t.Rows, r)
	return r
}

func (t *table) print(w io.Writer) {
	fmt.Fprintf(w, "\n### %s, %s, %d ranks\n\n", t.Collective, t.Transport, t.Ranks)
	var cells [][]string
	for _, r := range t.Rows {
		name := r.Algorithm
		if r.Chosen > 0 {
			name = "* " + name
		}
		predicted, measured := report.Significant(r.Predicted.Median()), report.Significant(r.Measured.Median())
		cells = append(cells, []string{fmt.Sprint(r.Size), name, predicted, measured, report.Ratio(r.ratio())})
	}
	report.Markdown(w, []string{"bytes", "algorithm", "predicted", "measured", "ratio"}, cells)
}

// ratio is missing if nothing was predicted.
func (r *row) ratio() stats.Number { return paired.Compare(r.Predicted, r.Measured).Ratio }

// factor is the permitted factor between a prediction and a measurement.
const factor = 1.5

// scoreOf counts the rows of a transport with a good prediction.
func scoreOf(tables []*table, transport string) string {
	var all, within, unknown int
	for _, t := range tables {
		if t.Transport != transport {
			continue
		}
		for _, r := range t.Rows {
			switch ratio := r.ratio(); {
			case ratio != ratio:
				unknown++
				continue
			case ratio >= 1/factor && ratio <= factor:
				within++
			}
			all++
		}
	}
	text := fmt.Sprintf("%d of %d rows within a factor of %v", within, all, factor)
	if unknown > 0 {
		text += fmt.Sprintf(", and %d of which the model says nothing", unknown)
	}
	return text + "."
}
