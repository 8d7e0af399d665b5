package torchrun

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"ddpbatch/internal/testkit/torch"
	"ddpbatch/mpi/launch"
	streams "ddpbatch/mpi/launch/output"
)

// torchLine is what torchrun reads from a command line.
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
	Redirects  map[int]int // for local ranks 0 to 9
	Tee        map[int]int
	Standalone bool
	NodeRank   int
	Command    []string
}

// askTorchrun prints, as JSON, what torchrun's own parser reads from command lines. The lines are in its argument, in JSON.
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

// torchLine returns what our parser read, in the same form.
func (o *Options) torchLine(environ variables) torchLine {
	command, err := o.Argv(environ["PYTHON_EXEC"])
	if err != nil {
		return torchLine{Error: err.Error()}
	}
	if o.RunPath { // torchrun calls a function there
		command = append([]string{"run_path"}, command[4:]...)
	}
	nodes := o.Nodes
	if nodes.Max == 0 {
		nodes = NodeRange{1, 1}
	}
	nproc, err := o.NprocOf(launch.DefaultConfig().NprocPerNode).On(0, environ.lookup)
	if err != nil {
		return torchLine{Error: err.Error()}
	}
	line := torchLine{
		Min: nodes.Min, Max: nodes.Max, Nproc: nproc, Backend: o.Rendezvous.Backend, ID: o.Rendezvous.ID, Conf: o.confText(),
		Restarts: o.MaxRestarts, Role: o.Role, LogDir: o.LogDir,
		Redirects: modes(o.Output.Redirects), Tee: modes(o.Output.Tees), Standalone: o.Standalone, NodeRank: o.NodeRank, Command: command,
	}
	// torchrun's defaults
	if line.Backend == "" {
		line.Backend = Static
	}
	if line.ID == "" {
		line.ID = "none"
	}
	if line.Role == "" {
		line.Role = "default"
	}
	switch {
	case line.Backend == Static:
		line.Endpoint = fmt.Sprintf("%s:%d", o.MasterAddr, o.MasterPort)
	case o.Rendezvous.Host != "":
		line.Endpoint = JoinEndpoint(o.Rendezvous.Host, o.Rendezvous.Port)
	}
	return line
}

// confText returns --rdzv-conf as torchrun's parser leaves it, with the keys that the test uses.
func (o *Options) confText() map[string]string {
	conf := map[string]string{}
	if o.Rendezvous.Conf.JoinTimeout > 0 {
		conf["join_timeout"] = fmt.Sprint(int(o.Rendezvous.Conf.JoinTimeout.Seconds()))
	}
	if o.Rendezvous.Conf.Timeout > 0 {
		conf["timeout"] = fmt.Sprint(int(o.Rendezvous.Conf.Timeout.Seconds()))
	}
	if o.Rendezvous.Conf.LastCall != nil {
		conf["last_call_timeout"] = fmt.Sprint(int(o.Rendezvous.Conf.LastCall.Seconds()))
	}
	if o.Rendezvous.Conf.IsHost != nil {
		conf["is_host"] = fmt.Sprint(*o.Rendezvous.Conf.IsHost)
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

// torchCase is one command line, spelled with underscores as in torchrun 1.13.
type torchCase struct {
	Line  string
	Words []string
	Env   map[string]string
}

// TestOurParserAgreesWithTorchruns gives torchrun's own parser and ours the same lines.
func TestOurParserAgreesWithTorchruns(t *testing.T) {
	cases := []torchCase{
		{Line: "train.py"},
		{Line: "train.py --nnodes 3 -m x"},
		{Line: "--nproc_per_node 4 train.py --lr 0.1"},
		{Line: "--nproc_per_node=4 --nnodes=2 --node_rank=1 --master_addr=n1 --master_port=1234 train.py a b"},
		{Line: "--nproc 4 --node 1 --nno 2 train.py"}, // abbreviated
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
		{Line: "train.py", Env: map[string]string{"PET_NPROC_PER_NODE": "3", "PET_NNODES": "2:3", "PET_NODE_RANK": "1",
			"PET_MASTER_ADDR": "n1", "PET_MASTER_PORT": "77"}},
		{Line: "--nproc_per_node 2 --node_rank 0 train.py",
			Env: map[string]string{"PET_NPROC_PER_NODE": "3", "PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "n1"}},
		{Line: "train.py", Env: map[string]string{"PET_STANDALONE": "1"}},
		{Line: "train.py", Env: map[string]string{"PET_STANDALONE": "0", "PET_NO_PYTHON": "1"}},
		{Line: "pkg", Env: map[string]string{"PET_MODULE": "1", "PET_TEE": "3", "PET_REDIRECTS": "0:1", "PET_ROLE": "r", "PET_LOG_DIR": "d",
			"PET_MAX_RESTARTS": "4"}},
		{Line: "train.py", Env: map[string]string{"PET_RDZV_BACKEND": "c10d", "PET_RDZV_ENDPOINT": "n1:7", "PET_RDZV_ID": "9",
			"PET_RDZV_CONF": "timeout=5"}},
		{Line: "train.py", Env: map[string]string{"PET_NODE_RANK": "x"}},
		{Line: "train.py", Env: map[string]string{"PYTHON_EXEC": "/opt/python"}},
	}
	for i := range cases {
		cases[i].Words = strings.Fields(cases[i].Line)
		if cases[i].Env["PYTHON_EXEC"] == "" {
			// without this, torchrun would use the path of its own interpreter
			env := map[string]string{"PYTHON_EXEC": "python3"}
			maps.Copy(env, cases[i].Env)
			cases[i].Env = env
		}
	}
	question, err := json.Marshal(cases)
	if err != nil {
		t.Fatal(err)
	}
	var answers []torchLine
	if err := json.Unmarshal([]byte(lastOf(torch.Run(t, askTorchrun, string(question)))), &answers); err != nil ||
		len(answers) != len(cases) {
		t.Fatalf("%d answers to %d questions: %v", len(answers), len(cases), err)
	}
	accepted := 0
	for i, c := range cases {
		var got torchLine
		o, _, err := Parse(c.Words, variables(c.Env).lookup)
		switch {
		case err != nil:
			got.Error = err.Error()
		case len(o.Command) == 0:
			got.Error = "no command: a run directory may have one"
		default:
			got = o.torchLine(c.Env)
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
		t.Errorf("torchrun took only %d of the lines: they test nothing", accepted)
	}
}

func lastOf(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
