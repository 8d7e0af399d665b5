package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/testkit/torch"
	"ddpbatch/mpi/launch"
	streams "ddpbatch/mpi/launch/output"
)

// torchLine is what torchrun makes of a command line.
type torchLine struct {
	Error      string
	Min, Max   int
	Nproc      int
	Backend    string
	Endpoint   string
	ID         string
	Conf       map[string]string
	Restarts   int
	Role       string
	LogDir     string
	Redirects  map[int]int // of local ranks 0 to 9
	Tee        map[int]int
	Standalone bool
	NodeRank   int
	Command    []string
}

// askTorchrun prints, as JSON, what torchrun's own parser makes of command lines, which stand in JSON in its argument.
const askTorchrun = `
import argparse, io, contextlib, json, os, sys
from torch.distributed import run
from torch.distributed.elastic.multiprocessing.api import Std, to_map
def modes(text): # what Std.from_str means; under Python 3.11 it has None for 0 and 3, as enums do not list their aliases any more
    pairs = [pair.split(":") for pair in text.split(",")]
    return to_map({int(i): int(Std(int(v))) for i, v in pairs} if ":" in text else Std(int(text)), 10)
rows = []
for case in json.loads(sys.argv[1]):
    os.environ.pop("OMP_NUM_THREADS", None)
    for name in [n for n in os.environ if n.startswith("PET_") or n == "PYTHON_EXEC"]:
        del os.environ[name]
    os.environ.update(case["Env"] or {})
    says = io.StringIO()
    try:
        with contextlib.redirect_stderr(says):
            args = run.parse_args(case["Words"])
        standalone = args.standalone
        config, command, rest = run.config_from_args(args)
        conf = run._parse_rendezvous_config(args.rdzv_conf)
        rows.append(dict(Error="", Min=config.min_nodes, Max=config.max_nodes, Nproc=config.nproc_per_node, Backend=config.rdzv_backend,
            Endpoint=config.rdzv_endpoint, ID=config.run_id, Conf=conf, Restarts=config.max_restarts, Role=config.role, LogDir=config.log_dir or "",
            Redirects=modes(args.redirects), Tee=modes(args.tee),
            Standalone=standalone, NodeRank=args.node_rank, Command=[command if isinstance(command, str) else "run_path"] + rest))
    except SystemExit:
        rows.append(dict(Error=says.getvalue().strip().splitlines()[-1]))
    except Exception as err:
        rows.append(dict(Error=repr(err)))
print(json.dumps(rows))
`

// ours is the same of run.
func (o *runOptions) torchLine(e *env) torchLine {
	command, err := o.argv(e)
	if err != nil {
		return torchLine{Error: err.Error()}
	}
	if o.runPath { // there a function does it
		command = append([]string{"run_path"}, command[4:]...)
	}
	nodes := o.nnodes
	if nodes.max == 0 {
		nodes = nodeRange{1, 1}
	}
	nproc, err := o.nprocOf(launch.DefaultConfig().NprocPerNode).On(0, e.lookup)
	if err != nil {
		return torchLine{Error: err.Error()}
	}
	line := torchLine{
		Min: nodes.min, Max: nodes.max, Nproc: nproc, Backend: o.rdzv.backend, ID: o.rdzv.id, Conf: o.confText(), Restarts: o.maxRestarts, Role: o.role, LogDir: o.logDir,
		Redirects: modes(o.redirects), Tee: modes(o.tees), Standalone: o.standalone, NodeRank: o.nodeRank, Command: command,
	}
	// what torchrun writes where nothing is said
	if line.Backend == "" {
		line.Backend = static
	}
	if line.ID == "" {
		line.ID = "none"
	}
	if line.Role == "" {
		line.Role = "default"
	}
	switch {
	case line.Backend == static:
		line.Endpoint = fmt.Sprintf("%s:%d", o.masterAddr, o.masterPort)
	case o.rdzv.host != "":
		line.Endpoint = joinEndpoint(o.rdzv.host, o.rdzv.port)
	}
	return line
}

// confText is --rdzv-conf as torchrun's parser leaves it, of the keys that the test uses.
func (o *runOptions) confText() map[string]string {
	conf := map[string]string{}
	if o.rdzv.conf.join > 0 {
		conf["join_timeout"] = fmt.Sprint(int(o.rdzv.conf.join.Seconds()))
	}
	if o.rdzv.conf.timeout > 0 {
		conf["timeout"] = fmt.Sprint(int(o.rdzv.conf.timeout.Seconds()))
	}
	if o.rdzv.conf.lastCall != nil {
		conf["last_call_timeout"] = fmt.Sprint(int(o.rdzv.conf.lastCall.Seconds()))
	}
	if o.rdzv.conf.isHost != nil {
		conf["is_host"] = fmt.Sprint(*o.rdzv.conf.isHost)
	}
	return conf
}

func modes(m streams.Map) map[int]int {
	all := map[int]int{}
	for local := range 10 {
		all[local] = int(m.Of(local))
	}
	return all
}

// torchCase is one command line, in the spelling that torchrun 1.13 knows: underscores.
type torchCase struct {
	Line  string
	Words []string
	Env   map[string]string
}

// TestRunAsTorchrun gives torchrun's own parser and ours the same lines.
func TestRunAsTorchrun(t *testing.T) {
	cases := []torchCase{
		{Line: "train.py"},
		{Line: "train.py --nnodes 3 -m x"},
		{Line: "--nproc_per_node 4 train.py --lr 0.1"},
		{Line: "--nproc_per_node=4 --nnodes=2 --node_rank=1 --master_addr=n1 --master_port=1234 train.py a b"},
		{Line: "--nproc 4 --node 1 --nno 2 train.py"}, // cut short
		{Line: "--nnodes 1:4 --rdzv_backend c10d --rdzv_endpoint n1:29400 --rdzv_id 7 train.py"},
		{Line: "--nnodes 2:2 --rdzv_backend c10d --rdzv_endpoint n1 train.py"},
		{Line: "--rdzv_endpoint n1:29400 train.py"},
		{Line: "--rdzv_endpoint= train.py"},
		{Line: "--rdzv_backend c10d --rdzv_conf join_timeout=60,last_call_timeout=3,is_host=true train.py"},
		{Line: "--rdzv_conf timeout=9 train.py"},
		{Line: "--rdzv_conf = train.py"},
		{Line: "--rdzv_conf a=,b=c train.py"},
		{Line: "--rdzv_conf a train.py"},
		{Line: "--max_restarts 3 --monitor_interval 0.5 --start_method fork --role worker train.py"},
		{Line: "--max_restarts -1 train.py"},
		{Line: "--max_restarts x train.py"},
		{Line: "--start_method thread train.py"},
		{Line: "-m pkg.mod --nnodes 3"},
		{Line: "--module pkg.mod a"},
		{Line: "--no_python sh -c x"},
		{Line: "--no_python -m sh -c x"},
		{Line: "--no_python -- sh -c x"},
		{Line: "--run_path /a/train.py b"},
		{Line: "--run_path --no_python /a/train.py b"},
		{Line: "--log_dir logs train.py"},
		{Line: "-r 3 -t 1 train.py"},
		{Line: "-r3 -t=1 train.py"},
		{Line: "-mr3 pkg"},
		{Line: "-mr 3 pkg"},
		{Line: "-m3 pkg"},
		{Line: "--tee=3 train.py"},
		{Line: "--redirects 0:1,1:2,3:3 --tee 0:0 train.py"},
		{Line: "-t 4 train.py"},
		{Line: "-t 0:4 train.py"},
		{Line: "-t 0:1, train.py"},
		{Line: "-t x:1 train.py"},
		{Line: "-t train.py"},
		{Line: "--nnodes 0 train.py"},
		{Line: "--nnodes 4:1 train.py"},
		{Line: "--nnodes 1:2:3 train.py"},
		{Line: "--nnodes x train.py"},
		{Line: "--nproc_per_node two train.py"},
		{Line: "--master_port x train.py"},
		{Line: "--node_rank 1.5 train.py"},
		{Line: "--nnodez 3 train.py"},
		{Line: "-nnodes 3 train.py"},
		{Line: "--no train.py"},
		{Line: "--standalone=1 train.py"},
		{Line: "--role --tee 3 train.py"},
		{Line: "--role"},
		{Line: "--standalone train.py"},
		{Line: "--standalone"},
		{Line: "train.py", Env: map[string]string{"PET_NPROC_PER_NODE": "3", "PET_NNODES": "2:3", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "n1", "PET_MASTER_PORT": "77"}},
		{Line: "--nproc_per_node 2 --node_rank 0 train.py", Env: map[string]string{"PET_NPROC_PER_NODE": "3", "PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "n1"}},
		{Line: "train.py", Env: map[string]string{"PET_STANDALONE": "1"}},
		{Line: "train.py", Env: map[string]string{"PET_STANDALONE": "0", "PET_NO_PYTHON": "1"}},
		{Line: "pkg", Env: map[string]string{"PET_MODULE": "1", "PET_TEE": "3", "PET_REDIRECTS": "0:1", "PET_ROLE": "r", "PET_LOG_DIR": "d", "PET_MAX_RESTARTS": "4"}},
		{Line: "train.py", Env: map[string]string{"PET_RDZV_BACKEND": "c10d", "PET_RDZV_ENDPOINT": "n1:7", "PET_RDZV_ID": "9", "PET_RDZV_CONF": "timeout=5"}},
		{Line: "train.py", Env: map[string]string{"PET_NODE_RANK": "x"}},
		{Line: "train.py", Env: map[string]string{"PYTHON_EXEC": "/opt/python"}},
	}
	for i := range cases {
		cases[i].Words = strings.Fields(cases[i].Line)
		if cases[i].Env["PYTHON_EXEC"] == "" {
			// torchrun would write its own interpreter's path
			cases[i].Env = with(map[string]string{"PYTHON_EXEC": "python3"}, cases[i].Env)
		}
	}
	question, err := json.Marshal(cases)
	if err != nil {
		t.Fatal(err)
	}
	var answers []torchLine
	if err := json.Unmarshal([]byte(lastOf(torch.Run(t, askTorchrun, string(question)))), &answers); err != nil || len(answers) != len(cases) {
		t.Fatalf("%d answers to %d questions: %v", len(answers), len(cases), err)
	}
	accepted := 0
	for i, c := range cases {
		e := &env{}
		for name, value := range c.Env {
			e.Environ = append(e.Environ, name+"="+value)
		}
		var got torchLine
		o, _, err := parseRun(c.Words, e.lookup)
		switch {
		case err != nil:
			got.Error = err.Error()
		case len(o.command) == 0:
			got.Error = "no command: a run directory may have one"
		default:
			got = o.torchLine(e)
		}
		want := answers[i]
		if (got.Error == "") != (want.Error == "") {
			t.Errorf("%s %v: torchrun says %q, run %q", c.Line, c.Env, want.Error, got.Error)
			continue
		}
		if want.Error == "" {
			accepted++
			a, _ := json.Marshal(got)
			b, _ := json.Marshal(want)
			if string(a) != string(b) {
				t.Errorf("%s %v:\nrun      %s\ntorchrun %s", c.Line, c.Env, a, b)
			}
		}
	}
	if accepted < 30 {
		t.Errorf("torchrun took only %d of the lines: they are no test of anything", accepted)
	}
}

func lastOf(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// tellEnvironment writes what a worker finds in its environment to a file of its own.
const tellEnvironment = `
import json, os, sys
with open(os.path.join(sys.argv[1], os.environ["RANK"] + ".json"), "w") as f:
    json.dump(dict(os.environ), f)
`

// TestRunEnvironmentAsTorchrun starts the same script under both launchers: each variable that torchrun sets is set, and to the same value but
// for those where ports and folders are of the run's own or docs/cli.md tells what differs.
func TestRunEnvironmentAsTorchrun(t *testing.T) {
	torch.Run(t, "import torch.distributed.run") // skips where there is none
	script := filepath.Join(t.TempDir(), "tell.py")
	if err := os.WriteFile(script, []byte(tellEnvironment), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := []string{"--nproc_per_node=2", "--role=actor", "--max_restarts=3", "--rdzv_id=77", "--master_port=" + fmt.Sprint(handPort(t)), "--log_dir=" + t.TempDir(),
		"--redirects=9:1", "--tee=9:1"} // torchrun 1.13 does not get along with its own defaults under Python 3.11
	real := environments(t, script, append([]string{"/usr/bin/python3", "-m", "torch.distributed.run"}, flags...))
	own := environments(t, script, append([]string{"ddpbatch", "run"}, flags...))
	differs := map[string]string{
		"OMP_NUM_THREADS":              "a share of the cores, where torchrun has 1",
		"TORCHELASTIC_USE_AGENT_STORE": "False, as --master_port is given",
		"TORCHELASTIC_ERROR_FILE":      "a folder of the run's own",
		"NCCL_ASYNC_ERROR_HANDLING":    "TORCH_NCCL_ASYNC_ERROR_HANDLING in versions from 2.2 on",
	}
	for rank := range 2 {
		compared := 0
		for name, want := range real[rank] {
			if _, inherited := os.LookupEnv(name); inherited || differs[name] != "" || name == "LC_CTYPE" {
				continue
			}
			compared++
			if got, ok := own[rank][name]; !ok || got != want {
				t.Errorf("rank %d: %s is %q (set: %t), under torchrun %q", rank, name, got, ok, want)
			}
		}
		if compared < 14 {
			t.Errorf("rank %d: only %d variables were compared", rank, compared)
		}
		if own[rank]["TORCHELASTIC_USE_AGENT_STORE"] != "False" || own[rank]["TORCH_NCCL_ASYNC_ERROR_HANDLING"] != "1" {
			t.Errorf("rank %d: TORCHELASTIC_USE_AGENT_STORE is %q", rank, own[rank]["TORCHELASTIC_USE_AGENT_STORE"])
		}
	}
}

// environments runs the script by a launcher, and returns each rank's environment.
func environments(t *testing.T, script string, launcher []string) (all []map[string]string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	dir := t.TempDir()
	words := append(slices.Clone(launcher), script, dir)
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "OMP_NUM_THREADS=") })
	cmd.WaitDelay = 10 * time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%q: %v\n%s", words, err, out)
	}
	for rank := range 2 {
		data, err := os.ReadFile(filepath.Join(dir, fmt.Sprint(rank)+".json"))
		if err != nil {
			t.Fatalf("%q: %v", words, err)
		}
		var one map[string]string
		if err := json.Unmarshal(data, &one); err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
	return all
}
