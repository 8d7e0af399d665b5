package slurm

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// directiveCases are scripts, and what sbatch 22.05.8 -vv prints for each: the options of its components, or "refused".
var directiveCases = []struct {
	name, script string
	want         []string // "name" or "name=value"; ":" between components
}{
	{"short and long", "#SBATCH -N 2 -n8 --partition=gpu --account proj\n",
		[]string{"nodes=2", "ntasks=8", "partition=gpu", "account=proj"}},
	{"after a command nothing counts", "#SBATCH -c4\n\n # a comment\n#SBATCH -t 90\nmodule load x\n#SBATCH -n9\n",
		[]string{"cpus-per-task=4", "time=90"}},
	{"only at the beginning of a line", " #SBATCH -n4\n##SBATCH -n3\n#SBATCH-n2\n", []string{"ntasks=2"}},
	{"# ends a line", "#SBATCH --comment=x#y -n2\n#SBATCH --comment='a # b' -n3\n", []string{"comment=x", "comment=a # b", "ntasks=3"}},
	{"quotes group, and a backslash escapes in both", `#SBATCH --comment="a\"b" --job-name='c\d e'` + "\n",
		[]string{`comment=a"b`, "job-name=cd e"}},
	{"an empty word ends a line", `#SBATCH "" -n3` + "\n", nil},
	{"names that are cut short", "#SBATCH --part=gpu --tasks-per=3\n", []string{"partition=gpu", "ntasks-per-node=3"}},
	{"a name that is cut too short", "#SBATCH --nta=3\n", []string{"refused"}},
	{"flags in one word", "#SBATCH -Hs --exclusive\n", []string{"hold", "oversubscribe", "exclusive"}},
	{"an optional value is in the same word", "#SBATCH --exclusive=user --nice=5 -k\n", []string{"exclusive=user", "nice=5", "no-kill"}},
	{"an optional value in a word of its own", "#SBATCH --exclusive user\n", []string{"refused"}},
	{"a word that is not an option", "#SBATCH -N1 foo\n", []string{"refused"}},
	{"a value for a flag", "#SBATCH --hold=1\n", []string{"refused"}},
	{"a value that is missing", "#SBATCH -N\n", []string{"refused"}},
	{"a value on the next line", "#SBATCH --nodes\n#SBATCH 3\n", []string{"nodes=3"}},
	{"an unknown letter", "#SBATCH -Y\n", []string{"refused"}},
	{"a quote without an end", "#SBATCH --comment=\"a\n", []string{"refused"}},
	{"a colon", "#SBATCH :x\n", []string{"refused"}},
	{"a heterogeneous job", "#SBATCH -N1\n#SBATCH hetjob -n7\n#SBATCH -N2\n#SBATCH PACKJOB\n#SBATCH -N3\n",
		[]string{"nodes=1", ":", "nodes=2", ":", "nodes=3"}},
	{"hetjob in a line ends it", "#SBATCH -N2 hetjob -n7\n#SBATCH --comment=hetjob\n", []string{"nodes=2", "comment=hetjob"}},
}

func TestDirectives(t *testing.T) {
	for _, test := range directiveCases {
		var got []string
		given, err := Directives("#!/bin/bash\n" + test.script)
		part := 0
		for _, g := range given {
			for ; part < g.Part; part++ {
				got = append(got, ":")
			}
			word := g.Name
			if g.HasValue {
				word += "=" + g.Value
			}
			got = append(got, word)
		}
		if err != nil {
			got = []string{"refused"}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %q (%v), want %q", test.name, got, err, test.want)
		}
	}
}

// The installed sbatch reads the same options in these scripts. It prints the options that are set, in its own order.
func TestDirectivesWithSbatch(t *testing.T) {
	sbatch, err := exec.LookPath("sbatch")
	if err != nil {
		t.Skip("no sbatch on the PATH")
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "slurm.conf"),
		"ClusterName=none\nSlurmctldHost=localhost(127.0.0.1)\nSlurmctldPort=1\nNodeName=n1\nPartitionName=p Nodes=n1\n")
	for _, test := range directiveCases {
		script := filepath.Join(dir, "script.sh")
		write(t, script, "#!/bin/bash\n"+test.script+"true\n")
		got := sbatchOptions(t, sbatch, dir, script)
		want := map[string]string{}
		if i := slices.Index(test.want, ":"); i >= 0 {
			test.want = test.want[:i]
		}
		for _, word := range test.want {
			name, value, _ := strings.Cut(word, "=")
			want[name] = value
		}
		for name, value := range want {
			if sets, given := got[name]; !given || value != "" && name != "time" && sets != value {
				t.Errorf("%s: sbatch says %q of %s, want %q", test.name, sets, name, value)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s: sbatch read %q, want %q", test.name, got, want)
		}
	}
}

// sbatchOptions returns the options that sbatch has read from a script's first component, or "refused".
func sbatchOptions(t *testing.T, sbatch, dir, script string) map[string]string {
	t.Helper()
	cmd := exec.Command(sbatch, "-vv", script)
	cmd.Env = []string{"SLURM_CONF=" + filepath.Join(dir, "slurm.conf"), "PATH=" + os.Getenv("PATH")}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read, begun := map[string]string{}, false
	lines := bufio.NewScanner(stderr)
	for lines.Scan() && !strings.Contains(lines.Text(), "end of defined options") {
		begun = begun || strings.Contains(lines.Text(), "defined options")
		if name, value, ok := strings.Cut(strings.TrimPrefix(lines.Text(), "sbatch: "), ": "); ok && begun &&
			strings.TrimSpace(name) != "verbose" {
			read[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
	}
	_ = cmd.Process.Kill() // otherwise it would now look for a controller
	_ = cmd.Wait()         // its error says that it was killed
	if !begun {
		return map[string]string{"refused": ""}
	}
	return read
}

func TestSrunOptions(t *testing.T) {
	given, rest, err := SrunOptions(strings.Fields("-N2 --ntasks-per-node 4 -lu -K --mpi=pmix --container-image img python -n 3"))
	if err != nil || !slices.Equal(rest, []string{"python", "-n", "3"}) {
		t.Fatalf("%q, %v", rest, err)
	}
	var words []string
	for _, g := range given {
		words = append(words, g.Word())
	}
	want := []string{"--nodes=2", "--ntasks-per-node=4", "--label", "--unbuffered", "--kill-on-bad-exit", "--mpi=pmix",
		"--container-image=img"}
	if !slices.Equal(words, want) {
		t.Errorf("%q, want %q", words, want)
	}
}

func FuzzDirectives(f *testing.F) {
	for _, test := range directiveCases {
		f.Add("#!/bin/bash\n" + test.script)
	}
	f.Fuzz(func(t *testing.T, script string) {
		given, err := Directives(script)
		if err != nil && (given != nil || strings.ContainsAny(err.Error(), "\n\x1b\x00")) {
			t.Fatalf("%q: %v, %v", script, given, err)
		}
		for _, g := range given {
			if g.Line < 1 || g.Name == "" && g.Known {
				t.Fatalf("%q: %+v", script, g)
			}
		}
	})
}
