package jobfile

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	words "ddpbatch/internal/text"
	"ddpbatch/slurm"
)

// sweeping returns a job of the built-in trainer with [sweep]. The first line of the table is line 8 of the file.
func sweeping(lines ...string) string {
	return "name = \"x\"\n" + builtin + "[sweep]\n" + strings.Join(lines, "\n")
}

// sweptAs returns an element's values as a person sees them, with the names of their columns.
func sweptAs(s *Sweep, index int) string {
	var parts []string
	for i, column := range s.Columns() {
		parts = append(parts, column+"="+s.Shown(index)[i])
	}
	return strings.Join(parts, " ")
}

func TestSweepsExpandInTheOrderOfTheFile(t *testing.T) {
	for _, test := range []struct {
		name  string
		lines []string
		want  []string
		array string
	}{
		{"a list", []string{`"train.optimizer.lr" = [0.1, 0.01]`}, []string{"lr=0.1", "lr=0.01"}, "0-1"},
		{"one value", []string{`seed = [7]`}, []string{"seed=7"}, "0"},
		{"a range, by its short name", []string{`seed = "1-3"`}, []string{"seed=1", "seed=2", "seed=3"}, "0-2"},
		{"a range with a step", []string{`"train.seed" = "1-8:3"`}, []string{"seed=1", "seed=4", "seed=7"}, "0-2"},
		{"the last key varies fastest", []string{`seed = "1-2"`, `lr = [0.1, 0.2]`},
			[]string{"seed=1 lr=0.1", "seed=1 lr=0.2", "seed=2 lr=0.1", "seed=2 lr=0.2"}, "0-3"},
		{"no quotation marks", []string{`train.seed = [1, 2]`, `train.optimizer.lr = [0.1]`}, []string{"seed=1 lr=0.1", "seed=2 lr=0.1"},
			"0-1"},
		{"zip", []string{`mode = "zip"`, `lr = [0.1, 0.2]`, `seed = [5, 5]`}, []string{"lr=0.1 seed=5", "lr=0.2 seed=5"}, "0-1"},
		{"some at once", []string{`seed = "0-9"`, `parallel = 3`}, nil, "0-9%3"},
		{"lists, words and truth values", []string{`"train.model.kind" = ["mlp"]`, `"train.model.hidden" = [[4], [8, 2]]`,
			`"train.data.shuffle" = [true]`},
			[]string{"kind=mlp hidden=[4] shuffle=true", "kind=mlp hidden=[8, 2] shuffle=true"}, "0-1"},
		{"names of which the ends are the same", []string{`"train.model.kind" = ["mlp"]`, `"train.optimizer.kind" = ["sgd", "adam"]`},
			[]string{"model.kind=mlp optimizer.kind=sgd", "model.kind=mlp optimizer.kind=adam"}, "0-1"},
		{"variables", []string{`"setup.env.LR" = [0.5, 1e-7, 1.0, "x y"]`}, []string{"LR=0.5", "LR=1e-07", "LR=1.0", "LR=x y"}, "0-3"},
		{"a range of a variable", []string{`"setup.env.N" = "8-9"`}, []string{"N=8", "N=9"}, "0-1"},
		{"secrets in words", []string{`"setup.env.ARGS" = ["--api-key=abc -v", "-q"]`, `"setup.env.N" = [1]`},
			[]string{"ARGS=--api-key=*** -v N=1", "ARGS=-q N=1"}, "0-1"},
		{"secrets", []string{`"setup.env.API_KEY" = ["abc", "def"]`}, []string{"API_KEY=***", "API_KEY=***"}, "0-1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			job, warnings, err := parse(sweeping(test.lines...))
			if err != nil || len(warnings) > 0 {
				t.Fatalf("%v, warnings %v", err, warnings)
			}
			checkJob(t, job)
			var got []string
			for i := range job.Sweep.Len() {
				got = append(got, sweptAs(job.Sweep, i))
			}
			if test.want != nil && !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if array, _ := job.Slurm.Get("array"); array != test.array {
				t.Errorf("sbatch is asked for the array %q, want %q", array, test.array)
			}
		})
	}
}

func TestElementsHaveTheirValues(t *testing.T) {
	job, _, err := parse(sweeping(`lr = [0.1, 0.2]`, `"setup.env.SIZE" = [1, "two"]`, `"checkpoint.keep_last" = [4]`))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		lr   float64
		size string
	}{{0.1, "1"}, {0.1, "two"}, {0.2, "1"}, {0.2, "two"}} {
		element, err := job.Element(i)
		if err != nil || element.Train.Optimizer.LR != want.lr || element.Env["SIZE"] != want.size ||
			element.Checkpoint.KeepLast != 4 || element.Sweep != nil {
			t.Errorf("element %d is %+v, %v; want %+v", i, element, err, want)
		}
	}
	for _, index := range []int{-1, 4} {
		if element, err := job.Element(index); err == nil {
			t.Errorf("there is an element %d: %+v", index, element)
		}
	}
	if want := (map[string]any{"train.optimizer.lr": 0.2, "setup.env.SIZE": "two", "checkpoint.keep_last": int64(4)}); !reflect.DeepEqual(
		job.Sweep.Given(3), want) {
		t.Errorf("got %v, want %v", job.Sweep.Given(3), want)
	}
}

// If a command is swept, no secret in it is shown in a table, in JSON, or in the name of a folder.
func TestSweptCommandsShowNoSecret(t *testing.T) {
	job, _, err := parse("name = \"x\"\n[sweep]\n\"launch.command\" = [[\"a\", \"--api-key=hush\"], [\"b\"]]\n")
	if err != nil {
		t.Fatal(err)
	}
	said := fmt.Sprint(job.Sweep.Shown(0), job.Sweep.Given(0), job.Sweep.Name(0))
	if strings.Contains(said, "hush") || !strings.Contains(said, `["a", "--api-key=***"]`) {
		t.Errorf("shown as %s", said)
	}
	if element, err := job.Element(0); err != nil || element.Launch.Command[1] != "--api-key=hush" {
		t.Errorf("the element runs %q, %v", element.Launch.Command, err)
	}
}

func TestBadSweepsAreFaults(t *testing.T) {
	const shared = " cannot be swept: all elements share the batch script, the run directory, and what they ask of Slurm; submit a " +
		"job for each value instead"
	for _, test := range []struct{ line, want string }{
		{`"train.optimizer.lrr" = [1]`, `unknown key train.optimizer.lrr: did you mean train.optimizer.lr?`},
		{`"trian.seed" = [1]`, `unknown key trian: did you mean [train]?`},
		{`"model.hidden" = [[1], [2]]`, `unknown key "model.hidden" in [sweep]: did you mean "train.model.hidden"?`},
		{`nodes = [1, 2]`, `slurm.nodes` + shared},
		{`hang = ["1m"]`, `unknown key "hang" in [sweep]: did you mean "launch.hang" or "requeue.max.hang"?`},
		{`"train.seed.x" = [1]`, `unknown key train.seed.x: train.seed is not a table`},
		{`sed = [1]`, `unknown key "sed" in [sweep]: did you mean "train.seed"?`},
		{`zzzzzzzzzzz = [1]`, `unknown key "zzzzzzzzzzz" in [sweep]: write a key of the job file, such as "train.optimizer.lr", or a ` +
			`variable of the ranks, "setup.env.NAME"`},
		{`kind = ["mlp"]`, `"kind" in [sweep] may mean "train.data.kind", "train.model.kind", "train.optimizer.kind" or ` +
			`"train.schedule.kind": write the whole key`},
		{`"train.optimizer" = [1]`, `[train.optimizer] is a table: sweep its keys, each by its whole name`},
		{`train = [1]`, `[train] is a table: sweep its keys, each by its whole name`},
		{`"slurm.time" = ["1:00:00"]`, `slurm.time` + shared},
		{`slurm = [1]`, `[slurm] is a table: sweep its keys, each by its whole name`},
		{`name = ["a"]`, `name` + shared},
		{`run_dir = ["a"]`, `run_dir` + shared},
		{`script_template = ["a"]`, `script_template` + shared},
		{`"launch.nproc_per_node" = [1, 2]`, `launch.nproc_per_node` + shared},
		{`"setup.script" = [["a"]]`, `setup.script` + shared},
		{`"sweep.mode" = ["zip"]`, `sweep.mode` + shared},
		{`seed = 5`, `train.seed must be a list of values here, or a range of whole numbers such as "1-5" or "1-9:2", not 5`},
		{`seed = []`, `the list of values of train.seed is empty`},
		{`seed = "5"`, `train.seed must be a list of values here, or a range of whole numbers such as "1-5" or "1-9:2", not the text "5"`},
		{`"setup.env.API_KEY" = "hush"`,
			`setup.env.API_KEY must be a list of values here, or a range of whole numbers such as "1-5" or "1-9:2", not that text`},
		{`"setup.env.API_KEY" = ["hush", "hush"]`, `values 1 and 2 of setup.env.API_KEY are the same`},
		{`seed = "5-1"`, `the values of train.seed: the range "5-1" runs backwards; write the lower number first`},
		{`seed = "1-5:0"`, `the values of train.seed: the step of the range "1-5:0" is 0; write 1 or more`},
		{`seed = "0-99999999999999999999"`, `the values of train.seed: the range "0-99999999999999999999" has a number that is too large`},
		{`seed = "0-9223372036854775807"`,
			`the values of train.seed: the range "0-9223372036854775807" is too long: a sweep has at most 10000 elements`},
		{`seed = "1-10001"`, `the values of train.seed: the range "1-10001" is too long: a sweep has at most 10000 elements`},
		{`seed = [1, 2, 1]`, `values 1 and 3 of train.seed are the same`},
		{`"train.model" = [{ kind = "mlp" }]`, `[train.model] is a table: sweep its keys, each by its whole name`},
		{`seed = [{ a = 1 }]`, `value 1 of train.seed is a table, which cannot be a value of a key`},
		{`seed = [1979-05-27]`, `value 1 of train.seed is a date or time (write it in quotes), which cannot be a value of a key`},
		{`mode = "grid"`, `sweep.mode must be "product" or "zip", not the text "grid"`},
		{`parallel = 0`, `sweep.parallel must be a whole number of at least 1, not 0`},
		{`seed = [1, "x"]`, `train.seed must be a whole number from 0 to 4294967295, not the text "x" (element 1 of the sweep, seed=x)`},
		{`lr = [0.1, -1]`, `train.optimizer.lr: is -1, want a number above 0 that float32 holds, from 1e-45 to 3e38 ` +
			`(element 1 of the sweep, lr=-1)`},
		{`"setup.env.1A" = ["x"]`,
			`"1A" is not a name for an environment variable: use letters, digits and _ (element 0 of the sweep, 1A=x)`},
		{`"setup.env.A" = [["x"]]`, `setup.env.A must be text without NUL, in quotes, not a list (element 0 of the sweep, A=__x__)`},
	} {
		t.Run(test.line, func(t *testing.T) {
			checkFaults(t, sweeping(test.line), nil, "job.toml:8:1: "+test.want)
		})
	}
}

func TestSweepsThatDoNotGoWithTheRest(t *testing.T) {
	for _, test := range []struct {
		name, src string
		sets      []string
		want      []string
	}{
		{"no key", sweeping(`parallel = 2`), nil,
			[]string{`job.toml:7:2: [sweep] does not name a key of the job file, such as "train.optimizer.lr" = [0.1, 0.01]`}},
		{"no table", "name = \"x\"\nsweep = 3\n" + command, nil, []string{`job.toml:2:1: sweep must be a table, not 3`}},
		{"an array, too", "name = \"x\"\nslurm.array = \"0-3\"\n" + builtin + "[sweep]\nseed = \"1-2\"", nil,
			[]string{`job.toml:2:7: slurm.array cannot be combined with [sweep], which makes the array: to limit how many elements run ` +
				`at once, write sweep.parallel = N`}},
		{"a chain, too", "name = \"x\"\nslurm.chain = 3\n" + builtin + "[sweep]\nseed = \"1-2\"", nil,
			[]string{`job.toml:2:7: slurm.chain cannot be combined with [sweep], whose elements end at different times: ` +
				`submit a job for each value, or leave it out`}},
		{"no array", "name = \"x\"\nslurm.skip = [\"--array\"]\n" + builtin + "[sweep]\nseed = \"1-2\"", nil,
			[]string{`job.toml:2:7: slurm.skip: the elements of [sweep] are one array, so --array cannot be skipped (element ` +
				`0 of the sweep, seed=1)`}},
		{"lists of two lengths", sweeping(`mode = "zip"`, `seed = "1-5"`, `lr = [0.1, 0.2]`), nil,
			[]string{`job.toml:10:1: train.optimizer.lr has 2 values and train.seed 5: with mode = "zip" all keys must have ` +
				`the same number of values`}},
		{"an element twice", sweeping(`mode = "zip"`, `seed = [1, 2, 1]`, `lr = [0.1, 0.1, 0.1]`), nil,
			[]string{`job.toml:7:2: elements 0 and 2 of the sweep have the same values`}},
		{"a key twice", sweeping(`seed = [1]`, `"train.seed" = [2]`), nil,
			[]string{`job.toml:9:1: train.seed is swept twice: write all its values once`}},
		{"too many elements", sweeping(`seed = "1-200"`, `epochs = "1-200"`), nil,
			[]string{`job.toml:7:2: the sweep has more than 10000 elements: write fewer values`}},
		{"what one element alone cannot do", sweeping(`"train.optimizer.kind" = ["sgd", "adam"]`, `"train.optimizer.momentum" = [0.9]`),
			nil,
			[]string{`job.toml:9:1: train.optimizer.momentum is not a key of kind "adam", only of "sgd" (element 1 of the sweep, ` +
				`kind=adam,momentum=0.9)`}},
		{"a fault of the file's own", "name = \"x\"\nlaunch.hang = 3\n" + builtin + "[sweep]\nseed = \"1-3\"", nil,
			[]string{`job.toml:2:8: launch.hang must be a duration, such as "90s" or "5m", or "0s" for none, not 3`}},
		{"a set beside it", sweeping(`seed = "1-2"`), []string{"train.seed=5"},
			[]string{`--set train.seed: the sweep sets train.seed in each element, so this would have no effect: submit the job ` +
				`with other values, --set 'sweep.train.seed=[...]', or without the sweep, --set sweep={}`}},
		{"a set of a table around it", sweeping(`"setup.env.A" = [1, 2]`), []string{`setup={env={A="3"}}`},
			[]string{`--set setup: the sweep sets setup.env.A in each element, so this would have no effect: ` +
				`submit the job with other values, --set 'sweep.setup.env.A=[...]', or without the sweep, --set sweep={}`}},
		{"a set of another type", sweeping(`seed = "1-2"`), []string{`sweep.seed=["x"]`},
			[]string{`--set sweep.seed: train.seed must be a whole number from 0 to 4294967295, not the text "x" (element ` +
				`0 of the sweep, seed=x)`}},
		{"data of two kinds", "name = \"x\"\n[train]\nloss = \"mse\"\nmodel.kind = \"dense\"\ndata.targets = " +
			"\"t.npy\"\n[sweep]\nmode = \"zip\"\n" +
			"\"train.data.kind\" = [\"npy\", \"generated\"]\n\"train.data.inputs\" = [\"x.npy\", 4]", nil,
			[]string{`job.toml:5:6: train.data.targets is not a key of kind "generated", only of "npy" (element 1 of the sweep, ` +
				`kind=generated,inputs=4)`}},
	} {
		t.Run(test.name, func(t *testing.T) { checkFaults(t, test.src, test.sets, test.want...) })
	}
}

// A key that every element sets need not be in the file as well.
func TestSweepsFillInWhatTheFileLacks(t *testing.T) {
	src := "name = \"x\"\n[train]\nloss = \"mse\"\nmodel = { kind = \"dense\" }\n[sweep]\n\"train.data.kind\" = " +
		"[\"generated\"]\nrows = [10, 20]\n"
	job, _, err := parse(src)
	if err != nil || job.Train.Data.Rows != 10 {
		t.Fatalf("%+v, %v", job, err)
	}
	if element, err := job.Element(1); err != nil || element.Train.Data.Rows != 20 {
		t.Errorf("%+v, %v", element, err)
	}
}

func TestOverridesOfASweep(t *testing.T) {
	src := sweeping(`seed = "1-2"`)
	job, _, err := parse(src, "sweep={}")
	if err != nil || job.Sweep != nil || len(job.Slurm.List) != 0 {
		t.Errorf("--set sweep={}: %+v, %v", job, err)
	}
	job, _, err = parse(src, "sweep.train.optimizer.lr=[0.5, 0.25]", "sweep.seed=7-8", "sweep.parallel=1")
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"lr=0.5 seed=7", "lr=0.5 seed=8", "lr=0.25 seed=7", "lr=0.25 seed=8"} {
		if got := sweptAs(job.Sweep, i); got != want {
			t.Errorf("element %d is %s, want %s", i, got, want)
		}
	}
	if array, _ := job.Slurm.Get("array"); array != "0-3%1" {
		t.Errorf("the array is %s", array)
	}
	job, _, err = parse(src, "sweep.train.seed=[4]", "sweep.train.seed=[5]") // another spelling of the key
	if err != nil || job.Sweep.Len() != 1 || sweptAs(job.Sweep, 0) != "seed=5" {
		t.Errorf("%+v, %v", job, err)
	}
}

// The number of faults is bounded, both for a fault that many elements share and for many different faults.
func TestFaultsOfManyElementsAreFew(t *testing.T) {
	checkFaults(t, sweeping(`lr = [0]`, `seed = "1-5000"`), nil,
		`job.toml:8:1: train.optimizer.lr: is 0, want a number above 0 that float32 holds, from 1e-45 to 3e38 (element 0 `+
			`of the sweep, lr=0,seed=1)`)
	_, _, err := parse(sweeping(`batch_size = "2000000-2000900"`))
	if faults, _ := errors.AsType[Faults](err); len(faults) != maxFaults+1 ||
		!strings.HasPrefix(faults[maxFaults].Message, "there are more than 100 faults") {
		t.Errorf("%d faults", len(faults))
	}
}

// If a sweep cannot be read, it makes no elements, whatever else is wrong.
func TestSweepsBesideManyFaults(t *testing.T) {
	sets := slices.Repeat([]string{"="}, maxFaults+5)
	_, _, err := parse(sweeping(`mode = "zip"`, `sed = 1`), sets...)
	if faults, _ := errors.AsType[Faults](err); len(faults) != maxFaults+1 {
		t.Errorf("%d faults", len(faults))
	}
}

// TestElementsAreTheJobsOfTheirValues: an element is the job that results from the file with the element's values as overrides. No two
// elements are the same.
func TestElementsAreTheJobsOfTheirValues(t *testing.T) {
	text := rapid.StringOf(rapid.Rune().Filter(func(r rune) bool { return !words.Unsafe(r) || r == '\t' }))
	draws := map[string]func(t *rapid.T) any{
		"train.seed":               func(t *rapid.T) any { return int64(rapid.Uint32().Draw(t, "seed")) },
		"train.optimizer.lr":       func(t *rapid.T) any { return rapid.Float64Range(1e-12, 1e12).Draw(t, "lr") },
		"train.optimizer.momentum": func(t *rapid.T) any { return rapid.Float64Range(0, 0.9).Draw(t, "momentum") },
		"train.epochs":             func(t *rapid.T) any { return int64(rapid.IntRange(1, 100).Draw(t, "epochs")) },
		"train.ddp.overlap":        func(t *rapid.T) any { return rapid.Bool().Draw(t, "overlap") },
		"train.ddp.compress": func(t *rapid.T) any {
			return rapid.SampledFrom([]string{"none", "int8", "bfloat16"}).Draw(t, "compress")
		},
		"checkpoint.keep_within": func(t *rapid.T) any { return strconv.Itoa(rapid.IntRange(1, 99).Draw(t, "hours")) + "h" },
		"setup.env.A":            func(t *rapid.T) any { return text.Draw(t, "A") },
		"setup.env.B":            func(t *rapid.T) any { return text.Draw(t, "B") },
	}
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.Permutation([]string{"train.seed", "train.optimizer.lr", "train.optimizer.momentum",
			"train.epochs", "train.ddp.overlap",
			"train.ddp.compress", "checkpoint.keep_within", "setup.env.A", "setup.env.B"}).Draw(t,
			"keys")[:rapid.IntRange(1, 3).Draw(t, "how many")]
		zipped := rapid.Bool().Draw(t, "zip")
		lists := make([][]string, len(keys))
		length := rapid.IntRange(1, 4).Draw(t, "length")
		for i, key := range keys {
			for len(lists[i]) < length && (zipped || len(lists[i]) == 0 || rapid.Bool().Draw(t, "another")) {
				value, ok := textOf(draws[key](t))
				if !ok {
					t.Fatalf("a value of %s has no text", key)
				}
				lists[i] = append(lists[i], value)
			}
			if !zipped {
				slices.Sort(lists[i])
				lists[i] = slices.Compact(lists[i])
			}
		}
		src := "name = \"x\"\n" + builtin
		sweepLines, mode := "", product
		for i, key := range keys {
			sweepLines += fmt.Sprintf("%q = [%s]\n", key, strings.Join(lists[i], ", "))
		}
		if zipped {
			mode = zip
		}
		job, _, err := parse(src + "[sweep]\n" + sweepLines + fmt.Sprintf("mode = %q\n", mode))
		want := combinations(lists, zipped)
		if err != nil {
			if zipped && distinct(want) < len(want) && strings.Contains(err.Error(), "have the same values") {
				return
			}
			t.Fatalf("%v of\n%s", err, sweepLines)
		}
		checkJob(t, job)
		if job.Sweep.Len() != len(want) || distinct(want) != len(want) {
			t.Fatalf("%d elements, want %d", job.Sweep.Len(), len(want))
		}
		for index, values := range want {
			var sets []string
			for i, key := range keys {
				sets = append(sets, key+"="+values[i])
			}
			alone, _, err := parse(src, sets...)
			if err != nil {
				t.Fatalf("%q: %v", sets, err)
			}
			array, _ := job.Slurm.Get("array")
			alone.Slurm.List = append([]slurm.Option{{Name: "array", Value: array}}, alone.Slurm.List...)
			element, err := job.Element(index)
			if err != nil || !reflect.DeepEqual(element, alone) {
				t.Fatalf("element %d, %v: got\n%+v\nwant\n%+v", index, err, element, alone)
			}
			if name := job.Sweep.Name(index); !regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._+=,-]{0,119}$`).MatchString(name) {
				t.Fatalf("element %d is called %q", index, name)
			}
		}
		if array, err := job.Array(); err != nil || len(array.Indices) != len(want) {
			t.Fatalf("%+v, %v", array, err)
		}
	})
}

// combinations combines one value of each list: all combinations, the last list fastest, or, if zipped, the values at the same place.
func combinations(lists [][]string, zipped bool) [][]string {
	if zipped {
		all := make([][]string, len(lists[0]))
		for i := range all {
			for _, list := range lists {
				all[i] = append(all[i], list[i])
			}
		}
		return all
	}
	all := [][]string{nil}
	for _, list := range lists {
		var longer [][]string
		for _, before := range all {
			for _, value := range list {
				longer = append(longer, append(slices.Clip(before), value))
			}
		}
		all = longer
	}
	return all
}

func distinct(all [][]string) int {
	seen := map[string]bool{}
	for _, values := range all {
		seen[strings.Join(values, "\n")] = true
	}
	return len(seen)
}

// Names are bounded in length, and cutting off or replacing characters does not create another kind of name.
func TestNamesOfElementsAreSafe(t *testing.T) {
	job, _, err := parse(sweeping(`"setup.env.PATTERN" = ["../../etc; rm -rf *", "ä\u202e", ""]`, `"setup.env.TOKEN" = ["`+
		strings.Repeat("x", 300)+`"]`,
		`"setup.env.LONG" = ["`+strings.Repeat("y", 300)+`"]`))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"PATTERN=.._.._etc__rm_-rf__,TOKEN=___,LONG=" + strings.Repeat("y", maxShown),
		"PATTERN=__,TOKEN=___,LONG=" + strings.Repeat("y", maxShown),
		"PATTERN=,TOKEN=___,LONG=" + strings.Repeat("y", maxShown)} {
		if got := job.Sweep.Name(i); got != want {
			t.Errorf("element %d is called %q, want %q", i, got, want)
		}
	}
}

// A spec may belong to another user, who may have written anything.
func TestSpecsOfBrokenSweepsAreRefused(t *testing.T) {
	key := SweptKey{Key: "train.seed", Values: []string{"1", "2"}}
	for name, s := range map[string]Sweep{
		"no keys": {Mode: product}, "no mode": {Keys: []SweptKey{key}}, "no values": {Mode: product, Keys: []SweptKey{key, {Key: "a"}}},
		"uneven": {Mode: zip, Keys: []SweptKey{key, {Key: "a", Values: []string{"1"}}}},
		"long":   {Mode: product, Keys: slices.Repeat([]SweptKey{key}, 20)},
		"wide":   {Mode: zip, Keys: slices.Repeat([]SweptKey{key}, maxSwept+1)},
	} {
		if err := s.check(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := (&Sweep{Mode: product, Keys: []SweptKey{key}}).check(); err != nil {
		t.Error(err)
	}
}
