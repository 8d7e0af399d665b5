package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"ddpbatch/mpi/launch"
	"ddpbatch/slurm"
)

// runOptions are torchrun's flags, as far as they are built.
type runOptions struct {
	standalone bool
	nnodes     int // 0: not given
	nodeRank   int
	nproc      string // "": not given
	masterAddr string
	masterPort int
	joinLimit  time.Duration
	command    []string
}

func newRunCommand(e *env) *cli.Command {
	both := func(name string) []string { // torchrun takes - and _ alike
		other := []rune(name)
		for i, r := range other {
			if r == '-' {
				other[i] = '_'
			}
		}
		return []string{string(other)}
	}
	return &cli.Command{
		Name:      "run",
		Usage:     "start and supervise this node's workers: the agent; torchrun's flags",
		ArgsUsage: "-- COMMAND... | SCRIPT.py ...",
		Description: example("srun --ntasks-per-node=4 ddpbatch run -- python3 train.py",
			"ddpbatch run --standalone --nproc-per-node 4 -- python3 train.py",
			"ddpbatch run --nnodes 2 --node-rank 0 --nproc-per-node 4 --master-addr n1 --master-port 29500 train.py"),
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "standalone", Usage: "one node, whatever else there is", EnvVars: []string{"PET_STANDALONE"}},
			&cli.StringFlag{Name: "nproc-per-node", Aliases: both("nproc-per-node"), Usage: "workers here: a number, gpu, cpu or auto", EnvVars: []string{"PET_NPROC_PER_NODE"}},
			&cli.IntFlag{Name: "nnodes", Usage: "`N` nodes; not needed under srun", EnvVars: []string{"PET_NNODES"}},
			&cli.IntFlag{Name: "node-rank", Aliases: both("node-rank"), Usage: "this one's number, from 0", EnvVars: []string{"PET_NODE_RANK"}},
			&cli.StringFlag{Name: "master-addr", Aliases: both("master-addr"), Usage: "`ADDRESS` of node 0", Value: "127.0.0.1", EnvVars: []string{"PET_MASTER_ADDR"}},
			&cli.IntFlag{Name: "master-port", Aliases: both("master-port"), Usage: "the workers' MASTER_PORT; agents meet on the eight ports after it", Value: 29500, EnvVars: []string{"PET_MASTER_PORT"}},
			&cli.DurationFlag{Name: "join-timeout", Aliases: both("join-timeout"), Usage: "how long the nodes wait for each other", Value: 5 * time.Minute},
		},
		Action: func(c *cli.Context) error {
			o := runOptions{
				joinLimit:  c.Duration("join-timeout"),
				standalone: c.Bool("standalone"), nnodes: c.Int("nnodes"), nodeRank: c.Int("node-rank"),
				nproc: c.String("nproc-per-node"), masterAddr: c.String("master-addr"), masterPort: c.Int("master-port"),
				command: c.Args().Slice(),
			}
			if len(o.command) > 0 && o.command[0] != "" && !afterDash(c) {
				o.command = append([]string{pythonOf(e), "-u"}, o.command...)
			}
			if err := o.check(c.IsSet("nnodes")); err != nil {
				return err
			}
			if o.nnodes > 1 && (!c.IsSet("node-rank") || !c.IsSet("master-addr")) {
				return &usageError{message: fmt.Sprintf("--nnodes is %d", o.nnodes), hint: "say --node-rank and --master-addr, too; under srun leave --nnodes out"}
			}
			return runRun(c.Context, e, o)
		},
	}
}

// afterDash tells whether the command's words stood after --.
func afterDash(c *cli.Context) bool {
	words := c.Args().Slice()
	all := c.Lineage()[1].Args().Slice() // "run", its flags, perhaps --, and the words
	before := len(all) - len(words) - 1
	return before > 0 && all[before] == "--"
}

// pythonOf is what torchrun runs scripts with.
func pythonOf(e *env) string {
	if python := e.get("PYTHON_EXEC"); python != "" {
		return python
	}
	return "python3"
}

func (o runOptions) check(nnodesGiven bool) error {
	switch {
	case nnodesGiven && o.nnodes < 1:
		return usagef("--nnodes is %d; it must be 1 or more", o.nnodes)
	case o.standalone && o.nnodes > 1:
		return usagef("--standalone is one node, and --nnodes says %d; leave one of them out", o.nnodes)
	case o.nodeRank < 0 || o.nodeRank >= max(1, o.nnodes):
		return usagef("--node-rank is %d; it must be 0 to %d (--nnodes is %d)", o.nodeRank, max(1, o.nnodes)-1, max(1, o.nnodes))
	case o.masterPort < 1 || o.masterPort > 65535-meetingPorts:
		return usagef("--master-port is %d; it must be 1 to %d", o.masterPort, 65535-meetingPorts)
	case o.joinLimit <= 0:
		return usagef("--join-timeout is %v; it must be longer, such as 5m", o.joinLimit)
	case o.masterAddr == "":
		return usagef("--master-addr is empty; name the first node")
	}
	return nil
}

func runRun(ctx context.Context, e *env, o runOptions) error {
	w, err := workersOf(e, o)
	if err != nil {
		return err
	}
	cfg := w.config(e)
	cfg.JoinTimeout = o.joinLimit
	if cfg.Deadline, err = deadlineOf(e); err != nil {
		return err
	}
	if err := place(e, o, w, &cfg); err != nil {
		return err
	}
	defer bearClosedPipes()()
	verdict, err := launch.Run(ctx, cfg)
	switch {
	case err != nil && verdict.Exit != 0:
		if !strings.Contains(err.Error(), verdict.Message) {
			err = fmt.Errorf("%s: %w", verdict.Message, err) // the verdict could not be written, say
		}
		return &codeError{code: verdict.Exit, err: err}
	case err != nil:
		return err
	case verdict.Exit == 0:
		return nil
	}
	// every agent ends with the run's one verdict; one of them says it
	if cfg.Index == 0 {
		return &codeError{code: verdict.Exit, err: errors.New(verdict.Message)}
	}
	return &codeError{code: verdict.Exit}
}

// place fills in where this agent stands among the others, from flags or from Slurm.
func place(e *env, o runOptions, w *workers, cfg *launch.AgentConfig) error {
	alloc, err := slurm.FromEnviron(e.lookup)
	inSlurm := !errors.Is(err, slurm.ErrNotInSlurm)
	switch {
	case inSlurm && err != nil && !o.standalone && o.nnodes == 0:
		return usagef("%v", err)
	case inSlurm && err == nil && (o.standalone || o.nnodes == 1) && alloc.InStep() && alloc.Tasks > 1:
		return &usageError{
			message: fmt.Sprintf("SLURM_NTASKS is %d: each task would start a world of its own", alloc.Tasks),
			hint:    "leave --standalone and --nnodes out, and Slurm says the rest",
		}
	case o.standalone || o.nnodes > 0 || !inSlurm:
		return placeByHand(e, o, w, cfg)
	}
	return placeBySlurm(e, o, w, alloc, cfg)
}

func placeByHand(e *env, o runOptions, w *workers, cfg *launch.AgentConfig) (err error) {
	cfg.Index, cfg.Count = o.nodeRank, max(1, o.nnodes)
	if cfg.Nproc, err = w.nproc.On(o.nodeRank, e.lookup); err != nil {
		return usagef("%v", err)
	}
	if tasks := tasksOf(e); tasks > 1 && cfg.Count*cfg.Nproc == 1 {
		return &usageError{
			message: fmt.Sprintf("SLURM_NTASKS is %d, and this would be a world of one", tasks),
			hint:    "start it with srun and without --standalone, or say --nproc-per-node",
		}
	}
	cfg.RunID = "standalone"
	if cfg.Count > 1 {
		cfg.MasterAddr, cfg.MasterPort = o.masterAddr, o.masterPort
		for i := range meetingPorts {
			cfg.Ports = append(cfg.Ports, o.masterPort+1+i)
		}
		cfg.RunID = "static/" + o.masterAddr + ":" + strconv.Itoa(o.masterPort)
	}
	cfg.Secret, err = secretOf(e, cfg)
	return err
}

func placeBySlurm(e *env, o runOptions, w *workers, alloc *slurm.Allocation, cfg *launch.AgentConfig) (err error) {
	if !alloc.InStep() && (len(alloc.Nodes) > 1 || alloc.Tasks > 1) {
		return &usageError{
			message: fmt.Sprintf("this is a batch script or a job's shell, and the job has %s and %s",
				plural(len(alloc.Nodes), "node"), plural(alloc.Tasks, "task")),
			hint: "start it with srun, or pass --standalone for this node alone",
		}
	}
	cfg.JobID, cfg.Restarts, cfg.RunID = jobIDOf(e), alloc.Restarts, alloc.Key()
	cfg.MasterAddr, cfg.Ports = alloc.Address(0), launch.Ports(alloc.Key(), meetingPorts)
	if name := alloc.NodeName(); name != "" {
		cfg.Host = name
	}
	if alloc.TaskMode() {
		if o.nproc != "" && o.nproc != "1" {
			return &usageError{
				message: fmt.Sprintf("srun starts a task per rank here (%s tasks), and --nproc-per-node asks for %s in each", strconv.Itoa(alloc.Tasks), o.nproc),
				hint:    "leave it out, or start one task a node: srun --ntasks-per-node=1",
			}
		}
		cfg.Index, cfg.Count = alloc.ProcID, alloc.Tasks
		cfg.Local = []launch.Place{taskPlace(alloc)}
	} else {
		cfg.Index, cfg.Count, cfg.Hosts = max(0, alloc.NodeRank), len(alloc.Nodes), alloc.Nodes
		if cfg.Nproc, err = w.nproc.On(cfg.Index, e.lookup); err != nil {
			return usagef("%v", err)
		}
	}
	cfg.Secret, err = secretOf(e, cfg)
	return err
}

// taskPlace is the place of a task that is itself a rank.
func taskPlace(alloc *slurm.Allocation) launch.Place {
	r := alloc.Rank()
	return launch.Place{
		Rank: r.Rank, LocalRank: r.LocalRank, WorldSize: r.WorldSize, LocalWorldSize: r.LocalWorldSize,
		NodeRank: r.NodeRank, Nodes: r.Nodes,
	}
}
