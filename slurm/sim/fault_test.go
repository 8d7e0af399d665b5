package sim_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"ddpbatch/slurm/sim"
)

func TestParseFault(t *testing.T) {
	for text, want := range map[string]sim.Fault{
		"kill:rank=3@step=20":              {Kind: sim.Kill, Rank: 3, Step: 20},
		"kill:3":                           {Kind: sim.Kill, Rank: 3},
		"stop:rank=0,for=2s@time=500ms":    {Kind: sim.Stop, For: 2 * time.Second, Time: 500 * time.Millisecond},
		"slow:1":                           {Kind: sim.Slow, Rank: 1, Share: 0.9},
		"slow:rank=1,share=0.25,for=1m":    {Kind: sim.Slow, Rank: 1, Share: 0.25, For: time.Minute},
		"term@start":                       {Kind: sim.Term, Rank: -1},
		"timeout:lead=2s@step=5#attempt=2": {Kind: sim.Timeout, Rank: -1, Lead: 2 * time.Second, Step: 5, Attempt: 2},
		"warn#attempt=1@step=5":            {Kind: sim.Warn, Rank: -1, Step: 5, Attempt: 1},
		"node:rack0n01":                    {Kind: sim.NodeDies, Rank: -1, Node: "rack0n01"},
		"agent:node=1@time=1s":             {Kind: sim.AgentDies, Rank: -1, Node: "1", Time: time.Second},
		"partition:node=node2":             {Kind: sim.Partition, Rank: -1, Node: "node2"},
		"nospace":                          {Kind: sim.NoSpace, Rank: -1},
		"nospace:5s@step=1":                {Kind: sim.NoSpace, Rank: -1, For: 5 * time.Second, Step: 1},
	} {
		want.Text = text
		if got, err := sim.ParseFault(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", text, got, err, want)
		}
	}
}

// TestParseFaultErrorsPointAtTheFault checks the words of each error and the column to which it points.
func TestParseFaultErrorsPointAtTheFault(t *testing.T) {
	for text, want := range map[string]struct {
		column int
		words  string
	}{
		"":                                 {1, "write one of kill, stop"},
		"boom:rank=1":                      {1, `"boom"`},
		"kill":                             {5, "kill:rank=0"},
		"kill@step=2":                      {5, "say which rank"},
		"kill:rank=x":                      {11, `"x"`},
		"kill:rank=-1":                     {11, "-1"},
		"kill:rank=1,rank=2":               {13, "twice"},
		"kill:rank=1,for=2s":               {13, `"for"; it takes rank`},
		"term:rank=1":                      {6, "does not take options"},
		"slow:rank=1,share=1":              {19, "between 0 and 1"},
		"slow:rank=1,share=NaN":            {19, "between 0 and 1"},
		"slow:0,share":                     {13, `""`},
		"stop:rank=1,for=-2s":              {17, "-2s"},
		"node":                             {5, "node:node=1"},
		"node:":                            {6, "name the node"},
		"kill:rank=1@step=0":               {18, `"0"`},
		"kill:rank=1@step":                 {17, `""`},
		"kill:rank=1@soon":                 {12, `"@soon"`},
		"kill:rank=1@later":                {12, "write when to inject it, as @start"},
		"kill:rank=1@start=1":              {12, "@start=1"},
		"kill:rank=1@step=2@time=3s":       {19, "each at most once"},
		"kill:rank=1#attempt=0":            {21, `"0"`},
		"kill:rank=1#attempt=1#attempt=2":  {22, "each at most once"},
		"kill:" + strings.Repeat("9", 300): {201, "longer than"},
	} {
		_, err := sim.ParseFault(text)
		if column, problem := parseFaultError(t, err); column != want.column || !strings.Contains(problem, want.words) {
			t.Errorf("%q: %v; want column %d, %s", text, err, want.column, want.words)
		}
	}
}

// parseFaultError splits an error of ParseFault into its column and its problem.
func parseFaultError(t *testing.T, err error) (column int, problem string) {
	m := regexp.MustCompile(`(?s)^fault "(?:[^"\\]|\\.)*", column (\d+): (.*)$`).FindStringSubmatch(fmt.Sprint(err))
	if m == nil {
		t.Errorf("%v is not an error of ParseFault", err)
		return 0, ""
	}
	column, _ = strconv.Atoi(m[1])
	return column, m[2]
}

func FuzzParseFault(f *testing.F) {
	for _, seed := range []string{"kill:rank=3@step=20", "slow:1,share=0.5,for=3s#attempt=2", "node:n1@time=1s", "@",
		"kill:", "nospace@start"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		fault, err := sim.ParseFault(text)
		switch {
		case err != nil:
			if column, _ := parseFaultError(t, err); column < 1 || column > len(text)+1 {
				t.Errorf("%q: %v", text, err)
			}
		case fault.OnRank() && fault.Rank < 0, fault.OnNode() && fault.Node == "", fault.Step < 0, fault.Time < 0, fault.For < 0:
			t.Errorf("%q: %+v", text, fault)
		}
	})
}

func TestCheckFaults(t *testing.T) {
	a := sim.Allocation{JobID: 1, Nodes: sim.PretendNodes(2)}
	for text, want := range map[string]string{
		"kill:3": "", "kill:4": "the last rank is 3", "node:1": "", "node:node2": "", "node:2": "node 2 does not exist",
		"agent:n7": "node[1-2]", "term": "",
	} {
		fault, err := sim.ParseFault(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.CheckFaults([]sim.Fault{fault}, 4); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
