package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/builtin"
	"ddpbatch/internal/doctor"
	"ddpbatch/internal/exit"
	"ddpbatch/internal/text"
	"ddpbatch/internal/torchrun"
	"ddpbatch/mpi"
	"ddpbatch/mpi/launch"
	"ddpbatch/slurm"
)

func newDoctorCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:        "doctor",
		Usage:       "check Slurm, or the nodes of a job and the network between them: what is wrong, and what to do",
		Description: example("ddpbatch doctor", "salloc -N4 --exclusive srun --ntasks-per-node=1 ddpbatch doctor"),
		Flags:       []cli.Flag{jsonFlag()},
		Action: func(c *cli.Context) error {
			if err := checkWords(c, 0, 0); err != nil {
				return err
			}
			return runDoctor(c.Context, e, c.Bool("json"))
		},
	}
}

// newDoctorTaskCommand returns the command that doctorStep has its agent start.
func newDoctorTaskCommand(e *env) *cli.Command {
	return &cli.Command{
		Name: doctorTask, Hidden: true, Usage: "doctor, on one node of a step", Flags: []cli.Flag{jsonFlag()},
		Action: func(c *cli.Context) error {
			err := doctorRank(c.Context, e, c.Bool("json"))
			if failed, ok := errors.AsType[*exit.Error](err); ok {
				failed.Code = doctorFails
			}
			return err
		},
	}
}

// runDoctor checks what this process is part of: a run, if it is a rank; a step of a job; or else the machine from which jobs are
// submitted.
func runDoctor(ctx context.Context, e *env, asJSON bool) error {
	if e.get("WORLD_SIZE") != "" || e.get("RANK") != "" {
		return doctorRank(ctx, e, asJSON)
	}
	alloc, err := slurm.FromEnviron(e.lookup)
	if err == nil && alloc.InStep() {
		return doctorStep(ctx, e, asJSON)
	}
	d, err := readDefaults(e)
	login := doctor.Login{
		Slurm: e.submitEnv().Slurm, Folder: doctor.Nearest(cmp.Or(d.RunDir(), e.abs("runs"))), Temp: os.TempDir(), Defaults: err,
		Now: e.Now,
	}
	found := login.Check(ctx)
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if alloc != nil {
		note(e, "this is a job's shell; srun --ntasks-per-node=1 ddpbatch doctor also checks the nodes of the job")
	}
	if asJSON {
		err = printJSON(e, map[string]any{"ok": doctor.Worst(found) != doctor.Fail, "findings": found})
	} else {
		_, isTerminal := e.Terminal(e.Out)
		err = printFindings(e, found, isTerminal, false)
	}
	if err == nil && doctor.Worst(found) == doctor.Fail {
		return &exit.Error{Code: exit.Failed} // the findings say why
	}
	return err
}

func printFindings(e *env, found []doctor.Finding, aligned, nodes bool) error {
	heading := []string{"LEVEL", "CHECK", "FOUND"}
	if nodes {
		heading = []string{"LEVEL", "CHECK", "NODES", "FOUND"}
	}
	table := text.NewTable(e.Out, aligned, false, heading...)
	for _, f := range found {
		row := []string{string(f.Level), f.Check, f.Text()}
		if nodes {
			row = []string{string(f.Level), f.Check, cmp.Or(f.Nodes, "-"), f.Text()}
		}
		table.Row(row...)
	}
	return table.Flush()
}

const (
	doctorJoinTimeout = "60s" // for the nodes to meet

	// doctorFails is the exit code of a rank started by doctorStep if a check fails, which its agent need not report.
	doctorFails = 3
	doctorTask  = "doctor-task"
)

// doctorStep is one task of a step: an agent whose only worker checks the node. So nodes that do not find each other are reported as in a
// run.
func doctorStep(ctx context.Context, e *env, asJSON bool) error {
	program, err := e.Executable()
	if err != nil {
		return err
	}
	command := []string{program, doctorTask}
	if asJSON {
		command = append(command, "--json")
	}
	o, _, err := torchrun.Parse(append([]string{"--join-timeout", doctorJoinTimeout, "--"}, command...), e.lookup)
	if err != nil {
		return err
	}
	w := &workers{
		command: command, builtin: true, brief: true, dir: e.Dir, launch: launch.DefaultConfig(), version: version,
		nproc: launch.Nproc{Counts: []int{1}}, attempt: 1, // an attempt that is not in any run directory
	}
	w.launch.Hang = 0
	err = runWorkers(ctx, e, &o, w)
	if ended, ok := errors.AsType[*exit.Error](err); ok && ended.Code == doctorFails {
		return &exit.Error{Code: exit.Failed} // rank 0 has printed why
	}
	return err
}

// doctorRank is one rank of a run; rank 0 prints.
func doctorRank(ctx context.Context, e *env, asJSON bool) (err error) {
	cfg := mpi.DefaultConfig()
	world, _ := strconv.Atoi(e.get("WORLD_SIZE")) // 0 if it is alone
	cfg.Timeout = doctor.Limit(world)
	comm, err := builtin.JoinWorld(ctx, e.lookup, cfg, e.log())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, comm.Close()) }()
	localRank, _ := strconv.Atoi(e.get("LOCAL_RANK"))
	smi, _ := exec.LookPath("nvidia-smi") // it need not exist
	task := doctor.Task{Host: e.Hostname, Version: version, Folder: e.Dir, NvidiaSMI: smi, Environ: e.Environ, Lookup: e.lookup,
		Root: os.DirFS("/")}
	if alloc, err := slurm.FromEnviron(e.lookup); err == nil {
		task.Host = cmp.Or(alloc.NodeName(), task.Host)
		if alloc.Addresses == nil {
			task.Names = alloc.Nodes
		}
	}
	report, err := task.Examine(ctx, comm, localRank)
	if err != nil || report == nil {
		return err
	}
	if asJSON {
		err = printJSON(e, reportJSON(report))
	} else {
		err = printFindings(e, report.Findings, true, true) // srun passes it on to the user, though the output is not a terminal
	}
	if err != nil || doctor.Worst(report.Findings) != doctor.Fail {
		return err
	}
	return &exit.Error{Code: exit.Failed}
}

type pairJSON struct {
	A         string  `json:"a"`
	B         string  `json:"b"`
	LatencyUS float64 `json:"latency_us"`
	Bandwidth float64 `json:"bandwidth"`
}

func reportJSON(r *doctor.Report) map[string]any {
	pairs := []pairJSON{}
	for _, p := range r.Pairs {
		pairs = append(pairs, pairJSON{r.Nodes[p.A].Host, r.Nodes[p.B].Host, float64(p.Latency) / 1e3, p.Bandwidth})
	}
	return map[string]any{
		"ok": doctor.Worst(r.Findings) != doctor.Fail, "findings": r.Findings, "nodes": r.Nodes, "pairs": pairs, "transport": r.Backend,
	}
}
