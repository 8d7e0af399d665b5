package torchrun

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"ddpbatch/internal/usage"
)

// variables is an environment.
type variables map[string]string

func (v variables) lookup(name string) (string, bool) {
	value, ok := v[name]
	return value, ok
}

// noEnviron is an empty environment.
func noEnviron(string) (string, bool) { return "", false }

// oneVariable is an environment with one variable.
func oneVariable(name, value string) func(string) (string, bool) {
	return variables{name: value}.lookup
}

// refusal parses a line that must be a usage error, and returns the error's text.
func refusal(t *testing.T, lookup func(string) (string, bool), words ...string) string {
	t.Helper()
	_, help, err := Parse(words, lookup)
	if err == nil || help || !errors.As(err, new(*usage.Error)) {
		t.Errorf("%q: help %t, %v; want a usage error", words, help, err)
		return ""
	}
	return err.Error()
}

// TestRunLineIsPartedAsByArgparse compares how a line is parsed with what argparse does with torchrun's flags.
func TestRunLineIsPartedAsByArgparse(t *testing.T) {
	for line, want := range map[string]string{
		"train.py -r 3":                            " | train.py -r 3",
		"-r3 -t=1 x":                               "redirects=3 tee=1 | x",
		"-r 0:3,12:1 --tee=3 x":                    "redirects=0:3,12:1 tee=3 | x",
		"-m pkg.mod --nnodes 3":                    "module=1 | pkg.mod --nnodes 3",
		"-mr3 x":                                   "module=1 redirects=3 | x",
		"-mr 3 x":                                  "module=1 redirects=3 | x",
		"--nproc_per_node=gpu x":                   "nproc-per-node=gpu | x",
		"--nproc-per_node 4 x":                     "nproc-per-node=4 | x",
		"--nproc 4 --stand x":                      "nproc-per-node=4 standalone=1 | x", // abbreviated
		"--max-restarts 1 --max_restarts 1 x":      "max-restarts=1 max-restarts=1 | x", // twice, with the same value
		"--local-ranks-filter= --rdzv_endpoint= x": "local-ranks-filter= rdzv-endpoint= | x",
		"--logdir a x":                             "log-dir=a | x", // a flag of torch.distributed.launch before 1.9
		"--rdzv-conf a=b,c=d x":                    "rdzv-conf=a=b,c=d | x",
		"--node-rank 0 -- sh -c x -- y":            "node-rank=0 -- sh -c x -- y",
		"--no-python -- -h":                        "no-python=1 -- -h",
		"--standalone":                             "standalone=1 | ",
		"- --standalone":                           " | - --standalone",
		"":                                         " | ",
		"--shutdown-timeout 5 x --shutdown-timeout": "shutdown-timeout=5 | x --shutdown-timeout",
	} {
		got, err := parseLine(strings.Fields(line))
		if err != nil {
			t.Errorf("%q: %v", line, err)
			continue
		}
		var words []string
		for _, s := range got.flags {
			words = append(words, s.flag.Name+"="+s.value)
		}
		between := " | "
		if got.dashed {
			between = " -- "
		}
		if text := strings.Join(words, " ") + between + strings.Join(got.words, " "); text != want {
			t.Errorf("%q is %q, want %q", line, text, want)
		}
	}
	for _, line := range []string{"-h", "--help", "--standalone -h x", "--nnodes 2 --help"} {
		if _, help, err := Parse(strings.Fields(line), noEnviron); err != nil || !help {
			t.Errorf("%q: help %t, %v", line, help, err)
		}
	}
}

// TestRunLineNamesWhatIsMistyped: an error names what is mistyped, and what was probably meant if that is clear.
func TestRunLineNamesWhatIsMistyped(t *testing.T) {
	for line, want := range map[string]string{
		"--nnodez 2 x":                   "no flag --nnodez; did you mean --nnodes?",
		"--nporc_per_node 2 x":           "did you mean --nproc-per-node?",
		"--nprocs 2 x":                   "no flag --nprocs; did you mean --nproc-per-node?",
		"--nothing-like-it x":            `no flag --nothing-like-it; try "ddpbatch run -h"`,
		"-nnodes 2 x":                    "-nnodes has one dash; write --nnodes",
		"-nproc_per_node=2 x":            "-nproc_per_node has one dash; write --nproc_per_node",
		"-standalone x":                  "-standalone has one dash; write --standalone",
		"-standalon x":                   `no flag "-s" (in "-standalon"); did you mean --standalone?`,
		"-n 4 x":                         `no flag "-n"; run's short flags are -m, -r and -t`,
		"-m3 x":                          `no flag "-3" (in "-m3")`,
		"-m=pkg x":                       `no flag "-=" (in "-m=pkg")`,
		"-r= x":                          "-r needs a value: MODE",
		"-r":                             "-r needs a value: MODE",
		"--no x":                         "--no may mean --node-rank or --no-python; write it whole",
		"--ta x":                         "no flag --ta", // ddpbatch's own flags cannot be abbreviated
		"--torch x":                      "no flag --torch",
		"--standalone=1 x":               `--standalone does not take a value, but has "1"`,
		"--role --tee 3 x":               "--role needs a value: NAME; for a value that begins with a dash, write --role=VALUE",
		"--role -- x":                    "--role needs a value",
		"--nproc-per-node xpu x":         "Intel's GPUs, which ddpbatch cannot count: write their number",
		"--role=-x --role=y x":           `--role is given twice, as "-x" and as "y"`,
		"--log-dir a --logdir b x":       `--logdir is given twice, as "a" and as "b"`,
		"-logdir a x":                    "-logdir has one dash; write --logdir",
		"--logd a x":                     "no flag --logd;", // this flag cannot be abbreviated
		"-t 3 --tee 1 x":                 `--tee is given twice, as "3" and as "1"`,
		"--nproc-per-node 2 --nproc 3 x": `--nproc is given twice, as "2" and as "3"`,
	} {
		if got := refusal(t, noEnviron, strings.Fields(line)...); !strings.Contains(got, want) {
			t.Errorf("%q: %s; want %s", line, got, want)
		}
	}
}

// samples has values for every flag that takes one: some that are accepted, and some that are not.
var samples = map[string]struct{ good, bad []string }{
	"nproc-per-node": {[]string{"1", "64", "gpu", "cpu", "auto"},
		[]string{"0", "-1", "1.5", "two", "gpus", "99999999999999999999"}},
	"nnodes":    {[]string{"1", "4", "1:4", "3:3"}, []string{"0", "-1", "x", "1:", ":2", "4:1", "1:2:3", "0:2", "70000"}},
	"node-rank": {[]string{"0", "7"}, []string{"-1", "x", "1.0", "65536"}},
	"master-addr": {[]string{"n1", "10.0.0.1", "[::1]", "fe80::1%eth0", "a-b.c_d"},
		[]string{"a b", "n1:29500", "[::1", "a/b", "ab:cd"}},
	"master-port":  {[]string{"29500", "65535", "0"}, []string{"-1", "65536", "x"}},
	"rdzv-backend": {[]string{"static", "c10d"}, []string{"etcd", "etcd-v2", "c10", "Static", "x"}},
	"rdzv-endpoint": {[]string{"n1:29400", "n1", "[::1]:3", "localhost:0", "::1:3"},
		[]string{":29400", "n1:", "n1:x", "n1:65536", "a b:3", "n1:-1"}},
	"rdzv-id": {[]string{"7", "a/b c"}, []string{"a\nb", strings.Repeat("x", 513)}},
	"rdzv-conf": {[]string{"join_timeout=60", "timeout=9, is_host=Yes", "store_type=tcp", "own_key=3"},
		[]string{"x", "a=", "=b", ",", "a=b,,c=d", "join_timeout=soon", "join_timeout=0", "is_host=perhaps", "store_type=file",
			"join_timeuot=3", "timeout=1,timeout=2", "last_call_timeout=-1"}},
	"local-addr": {[]string{"10.0.0.1", "n1"}, []string{"a b", "n1:3"}},
	"interface": {[]string{"ib0", "10.1.0.0/16", "^docker,veth", "=eth0"},
		[]string{"10.1.0.0/99", "a b", "alongerthan15chars"}},
	"join-timeout": {[]string{"5m", "30", "0.5"}, []string{"0", "-1s", "soon", "nan", "inf", "1e300", "9000h"}},
	"role":         {[]string{"trainer"}, []string{"a\x00b", "a\nb"}},
	"gpus":         {[]string{"all", "one", "auto"}, []string{"al", "ALL", "2"}},
	"numa-binding": {[]string{"node", "socket", "exclusive", "core-complex"}, []string{"core_complex", "sockets"}},
	"log-dir":      {[]string{"logs", "/a/b c"}, []string{"a\x00b", strings.Repeat("x", 4097)}},
	"redirects": {[]string{"0", "3", "0:1", "0:1,12:2,127:3"},
		[]string{"4", "-1", "x", "0:4", "0:", ":1", "0:1,", "0:1,2", "a:1", "9999999:1"}},
	"tee":                      {[]string{"0", "3", "0:1,1:2"}, []string{"4", "33", "0:1;1:2"}},
	"local-ranks-filter":       {[]string{"0", "0,2,4-7"}, []string{"-1", "x", "0,", "3-1", "0-", "9999999"}},
	"ranks-filter":             {[]string{"0", "1000,4-7"}, []string{"-1", "x", "0,,1", "1048576"}},
	"duplicate-stdout-filters": {[]string{"loss", "a,,b,c"}, nil}, // every text is valid
	"duplicate-stderr-filters": {[]string{"Error"}, nil},
	"prefix":                   {[]string{"[${host} ${rank}]: "}, []string{"a\nb", "${hots}"}},
	"max-restarts":             {[]string{"0", "3"}, []string{"-1", "x", "1.5", "1048577"}},
	"signals-to-handle":        {[]string{"SIGTERM", "term,SIGUSR1"}, []string{"SIGKILL", "SIGTEM", "15", "SIGTERM,", "SIGCHLD"}},
	"shutdown-timeout":         {[]string{"0", "30", "90s"}, []string{"-1", "x", "-1s"}},
	"hang":                     {[]string{"600", "10m", "0", "0s"}, []string{"1ms", "-5", "x"}},
	"monitor-interval":         {[]string{"0.1", "5"}, []string{"-1", "x"}},
	"start-method":             {[]string{"spawn", "fork", "forkserver"}, []string{"forkserve", "thread"}},
	"event-log-handler":        {[]string{"null"}, []string{"a\x01"}},
	"logs-specs":               {[]string{"default"}, []string{"a\x01"}},
}

// TestMisusedFlagsAreRefused tries every flag without a value, with values that it does not accept, twice, and in torchrun's variable.
func TestMisusedFlagsAreRefused(t *testing.T) {
	for _, f := range Flags {
		long, underscores := "--"+f.Name, "--"+strings.ReplaceAll(f.Name, "-", "_")
		if f.IsSwitch() {
			checkRefusal(t, long, noEnviron, long+"=1", "x")
			if f.variable() != "" {
				checkRefusal(t, f.variable(), oneVariable(f.variable(), "yes"), "x")
			}
			continue
		}
		s, ok := samples[f.Name]
		if !ok || len(s.good) == 0 || len(s.bad) == 0 && !strings.HasPrefix(f.Name, "duplicate-") {
			t.Errorf("%s is not tried", long)
			continue
		}
		checkRefusal(t, long, noEnviron, long)
		checkRefusal(t, long, noEnviron, long, "--standalone", "x")
		if !f.blank {
			checkRefusal(t, long, noEnviron, long+"=", "x")
			checkRefusal(t, underscores, noEnviron, underscores, "", "x")
		}
		for _, value := range s.bad {
			checkRefusal(t, long, noEnviron, long+"="+value, "x")
			checkRefusal(t, underscores, noEnviron, underscores+"="+value, "x")
			if f.variable() != "" {
				checkRefusal(t, f.variable(), oneVariable(f.variable(), value), "x")
			}
		}
		for _, value := range s.good {
			checkTaken(t, f, long, noEnviron, long+"="+value, "x")
			checkTaken(t, f, underscores, noEnviron, underscores, value, "x")
			if f.variable() != "" {
				checkTaken(t, f, f.variable(), oneVariable(f.variable(), value), "x")
				// the command line wins, and the variable's value is ignored
				checkTaken(t, f, long, oneVariable(f.variable(), append(s.bad, "-")[0]), long+"="+value, "x")
			}
		}
		if len(s.good) > 1 {
			checkRefusal(t, "given twice", noEnviron, long+"="+s.good[0], long+"="+s.good[1], "x")
		}
	}
}

func checkRefusal(t *testing.T, how string, lookup func(string) (string, bool), words ...string) {
	t.Helper()
	if got := refusal(t, lookup, words...); !strings.Contains(got, how) {
		t.Errorf("%.80q: %.200s; want %s named", words, got, how)
	}
}

func checkTaken(t *testing.T, f *Flag, how string, lookup func(string) (string, bool), words ...string) {
	t.Helper()
	o, _, err := Parse(words, lookup)
	if err != nil || o.given[f.Name] != how {
		t.Errorf("%.80q: given as %q, %v; want %s", words, o.given[f.Name], err, how)
	}
}

// TestContradictingFlagsAreRefused tries pairs of flags that cannot both be meant.
func TestContradictingFlagsAreRefused(t *testing.T) {
	for line, want := range map[string]string{
		"-m --no-python x":                           "-m and --no-python contradict each other",
		"-m --run-path /x":                           "-m and --run-path contradict",
		"--use-env --pass-local-rank x":              "--use-env and --pass-local-rank contradict",
		"--standalone --nnodes 2 x":                  "--standalone means one node, but --nnodes is 2",
		"--standalone --nnodes 1:4 x":                "--standalone means one node, but --nnodes is 4",
		"--nnodes 2 --node-rank 2 x":                 "--node-rank is 2; it must be 0 to 1",
		"--interface ib0 --local-addr 10.0.0.1 x":    "--interface and --local-addr contradict",
		"--gpus all --virtual-local-rank x":          "--virtual-local-rank and --gpus contradict",
		"--master-addr n1 --rdzv-endpoint n2:3 x":    "--rdzv-endpoint is n2:3",
		"--master-port 29500 --rdzv-endpoint n2:3 x": "--rdzv-endpoint is n2:3",
	} {
		if got := refusal(t, noEnviron, strings.Fields(line)...); !strings.Contains(got, want) {
			t.Errorf("%q: %s; want %s", line, got, want)
		}
	}
	if got := refusal(t, oneVariable("PET_NNODES", "2"), "--standalone", "x"); !strings.Contains(got, "PET_NNODES is 2") {
		t.Errorf("a variable against a flag: %s", got)
	}
	for _, line := range []string{"--run-path --no-python /x", "--rdzv-backend c10d --rdzv-endpoint n2:3 --master-addr n1 x",
		"--master-addr n2 --rdzv-endpoint n2:3 x"} {
		if _, _, err := Parse(strings.Fields(line), noEnviron); err != nil {
			t.Errorf("%q: %v", line, err)
		}
	}
}

// TestSecondShutdownVariableIsAskedLast: torchrun has a second variable for the shutdown timeout, which is read last.
func TestSecondShutdownVariableIsAskedLast(t *testing.T) {
	both := variables{"PET_SHUTDOWN_TIMEOUT": "5", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "7"}.lookup
	for _, row := range []struct {
		line   string
		lookup func(string) (string, bool)
		want   time.Duration
	}{
		{"--shutdown-timeout 3 x", both, 3 * time.Second},
		{"x", both, 5 * time.Second},
		{"x", oneVariable("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "7"), 7 * time.Second},
	} {
		if o, _, err := Parse(strings.Fields(row.line), row.lookup); err != nil || o.ShutdownTimeout != row.want {
			t.Errorf("%s: %v, %v; want %v", row.line, o.ShutdownTimeout, err, row.want)
		}
	}
	checkRefusal(t, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT", oneVariable("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "soon"), "x")
}

// TestSwitchVariablesAreNumbers: torchrun reads the variables of switches as numbers.
func TestSwitchVariablesAreNumbers(t *testing.T) {
	for value, want := range map[string]bool{"1": true, "2": true, "0": false, "": false} {
		o, _, err := Parse([]string{"x"}, oneVariable("PET_STANDALONE", value))
		if err != nil || o.Standalone != want || o.Has("standalone") != want {
			t.Errorf("PET_STANDALONE=%q: %t, %v", value, o.Standalone, err)
		}
	}
}

func TestFlagValuesAreRead(t *testing.T) {
	o, _, err := Parse(strings.Fields("--duplicate-stdout-filters a,,b,c --ranks-filter 3,8-10,9 --shutdown-timeout 1.5 "+
		"--join-timeout 2m -t 0:1,12:3 "+
		"--rdzv-endpoint [fe80::1%ib0]:7 --rdzv-conf join_timeout=60,last_call_timeout=0,is_host=0 --signals-to-handle sigusr1,TERM x"),
		noEnviron)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("%q %v %v %v %v %s %d %v %v %t %v", o.Output.OutFilters, o.Output.Ranks, o.ShutdownTimeout, o.JoinTimeout,
		o.Output.Tees.Ranks, o.Rendezvous.Host, o.Rendezvous.Port,
		o.Rendezvous.Conf.JoinTimeout, *o.Rendezvous.Conf.LastCall, *o.Rendezvous.Conf.IsHost, o.Signals)
	want := `["a,b" "c"] [3 8 9 10] 1.5s 2m0s map[0:1 12:3] fe80::1%ib0 7 1m0s 0s false [user defined signal 1 terminated]`
	if got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// TestRunLineNeverGuesses: whatever the words are, they are either taken as they are or are a usage error. No word of the command is lost.
func TestRunLineNeverGuesses(t *testing.T) {
	word := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{
		"--nnodes", "2", "-r", "-r3", "--tee=0:1", "-m", "--", "--standalone", "-mt", "--role", "x", "", "-", "--no", "-=", "--=",
		"-1", "--rdzv-conf", "a=b",
	}))
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOf(word).Draw(t, "words")
		o, help, err := Parse(words, noEnviron)
		switch {
		case err != nil && !errors.As(err, new(*usage.Error)):
			t.Fatalf("%q: %v", words, err)
		case err == nil && !help && !slices.Equal(o.Command, words[len(words)-len(o.Command):]):
			t.Fatalf("%q: the command is %q", words, o.Command)
		}
	})
}

func TestParseSpan(t *testing.T) {
	for text, want := range map[string]time.Duration{"0": 0, "30": 30 * time.Second, "1e1": 10 * time.Second,
		"0.25": 250 * time.Millisecond, "1m30s": 90 * time.Second} {
		if got, err := parseSpan(text, 0); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
}
