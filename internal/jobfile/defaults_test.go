package jobfile

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"ddpbatch/internal/rundir"
	"ddpbatch/slurm"
)

// site returns a file of a site's defaults with the given text, and user a file of a user's defaults.
func site(text string) rundir.DefaultsFile {
	return rundir.DefaultsFile{Name: "/etc/ddpbatch.toml", Site: true, Text: text}
}

func user(text string) rundir.DefaultsFile {
	return rundir.DefaultsFile{Name: "/home/ann/config.toml", Text: text}
}

// TestLaterFilesWinKeyByKey checks the values of a job's keys, and which file each comes from.
func TestLaterFilesWinKeyByKey(t *testing.T) {
	const job = "name = \"x\"\nlaunch.command = [\"true\"]\n"
	for _, test := range []struct {
		name, site, user, job string
		sets                  []string
		want                  []string // "key = value  # origin", in the order of keys
	}{
		{
			"each file has its keys", "[slurm]\naccount = \"phys\"\n", "[slurm]\nqos = \"low\"\n", "[slurm]\nnodes = 2\n",
			[]string{"slurm.time=10"},
			[]string{
				`slurm.account = phys  # /etc/ddpbatch.toml:2:1`, `slurm.nodes = 2  # job.toml:4:1`,
				`slurm.qos = low  # /home/ann/config.toml:2:1`, `slurm.time = 10  # --set slurm.time`,
			},
		},
		{
			"the later counts", "slurm.qos = \"a\"\n", "slurm.qos = \"b\"\n", "slurm.qos = \"c\"\n", []string{"slurm.qos=d"},
			[]string{`slurm.qos = d  # --set slurm.qos`},
		},
		{"the user over the site", "slurm.qos = \"a\"\n", "\n\nslurm.qos = \"b\"\n", "", nil,
			[]string{`slurm.qos = b  # /home/ann/config.toml:3:7`}},
		{"the job over the user", "slurm.qos = \"a\"\n", "slurm.qos = \"b\"\n", "slurm.qos = \"c\"\n", nil,
			[]string{`slurm.qos = c  # job.toml:3:7`}},
		{
			"lists are replaced", "slurm.skip = [\"mem\", \"time\"]\n", "slurm.skip = [\"mem\"]\n", "", nil,
			[]string{`slurm.skip = [mem]  # /home/ann/config.toml:1:7`},
		},
		{
			"an empty list replaces, too", "setup.modules = [\"cuda\"]\n", "", "setup.modules = []\n", nil,
			[]string{`setup.modules = []  # job.toml:3:7`},
		},
		{
			"inline tables are merged as others are", "setup.env = { A = \"1\", B = \"1\" }\n", "[setup.env]\nB = \"2\"\n",
			"setup.env.C = \"3\"\n", nil,
			[]string{`setup.env.A = 1  # /etc/ddpbatch.toml:1:15`, `setup.env.B = 2  # /home/ann/config.toml:2:1`,
				`setup.env.C = 3  # job.toml:3:11`},
		},
		{
			"an override of a whole table replaces the job's", "setup.env = { A = \"1\" }\n", "", "setup.env = { C = \"3\" }\n",
			[]string{`setup.env={B="2"}`},
			[]string{`setup.env.A = 1  # /etc/ddpbatch.toml:1:15`, `setup.env.B = 2  # --set setup.env`},
		},
		{
			"an override that is not a value of its key is the text that was typed", "slurm.qos = \"a\"\n", "", "",
			[]string{"slurm.account=0042", "setup.env.B={x=1}"},
			[]string{`setup.env.B = {x=1}  # --set setup.env.B`, `slurm.account = 0042  # --set slurm.account`,
				`slurm.qos = a  # /etc/ddpbatch.toml:1:7`},
		},
		{
			"of alternatives the later one counts", "[setup]\nvenv = \"/opt/venv\"\n[slurm]\nmem = \"1G\"\n", "",
			"setup.conda = \"mine\"\nslurm.mem_per_cpu = \"2G\"\n", nil,
			[]string{`setup.conda = mine  # job.toml:3:7`, `slurm.mem_per_cpu = 2G  # job.toml:4:7`},
		},
		{
			"of alternatives an override counts", "setup.venv = \"/opt/venv\"\n", "", "", []string{"setup.conda=mine"},
			[]string{`setup.conda = mine  # --set setup.conda`},
		},
		{
			"of alternatives the user's counts over the site's", "setup.venv = \"/opt/venv\"\n", "setup.conda = \"mine\"\n", "", nil,
			[]string{`setup.conda = mine  # /home/ann/config.toml:1:7`},
		},
		{
			"the site may have what it forbids to others", "slurm.qos = \"a\"\n[forbid]\n\"slurm.qos\" = \"ask\"\n", "", "", nil,
			[]string{`slurm.qos = a  # /etc/ddpbatch.toml:1:7`},
		},
		{
			"a sweep is shown as it is written", "launch.grace = \"5s\"\n", "",
			"[sweep]\n\"setup.env.A\" = [\"1\", \"2\"]\nmpi.algorithm = [\"star\", \"auto\"]\n",
			[]string{"sweep.parallel=1"},
			[]string{
				`launch.grace = 5s  # /etc/ddpbatch.toml:1:8`, `sweep.parallel = 1  # --set sweep.parallel`,
				`sweep."setup.env.A" = [1 2]  # job.toml:4:1`,
				`sweep.mpi.algorithm = [star auto]  # job.toml:5:5`,
			},
		},
		{"a file with a byte order mark", "\ufeffslurm.qos = \"a\"\n", "", "", nil, []string{`slurm.qos = a  # /etc/ddpbatch.toml:1:7`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			d, err := ParseDefaults(site(test.site), user(test.user))
			if err != nil {
				t.Fatal(err)
			}
			before := shown(t, d)
			settings, warnings, err := d.JobSettings("job.toml", "/jobs", []byte(job+test.job), test.sets)
			if err != nil || len(warnings) > 0 {
				t.Fatal(err, warnings)
			}
			var got []string
			for _, s := range settings {
				if s.Key != "name" && s.Key != "launch.command" {
					got = append(got, fmt.Sprintf("%s = %v  # %s", s.Key, s.Value, s.Origin()))
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(test.want, "\n\t"))
			}
			if after := shown(t, d); after != before {
				t.Errorf("a job has changed the defaults from\n%s\nto\n%s", before, after)
			}
		})
	}
}

// shown returns the defaults as config show prints them.
func shown(t *testing.T, d *Defaults) string {
	t.Helper()
	settings, err := d.Settings(nil)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := WriteTOML(&out, settings, true); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestMergedFileIsTheSameJob: the output of config show, read without any defaults, gives the same job as the files together.
func TestMergedFileIsTheSameJob(t *testing.T) {
	d, err := ParseDefaults(
		site("run_dir = \"/scratch/runs\"\n[slurm]\naccount = \"phys\"\nextra = [\"--switches=1\"]\n[setup]\nscript = [\"a='\\u202e' "+
			"\\\\\", \"\"\"b\nc\"\"\"]\nenv = { A = \"\\\"\\u0001\\u007f\\u0085\" }\n[requeue]\nmax = { node = 7 }\n"),
		user("[mpi]\ntimeout = \"3m\"\n[checkpoint]\nasync = false\nmemory = \"1G\"\n"),
	)
	if err != nil {
		t.Fatal(err)
	}
	src := []byte("name = \"x\"\nslurm.nodes = 3\n" + builtin)
	sets := []string{"train.optimizer.lr=0.5", "slurm.exclusive=true", "name=2024", "slurm.time=01:00:00",
		"setup.env.B={x=1}", "setup.env.C="}
	want, _, err := d.Parse("job.toml", "/jobs", src, sets)
	if err != nil {
		t.Fatal(err)
	}
	settings, _, err := d.JobSettings("job.toml", "/jobs", src, sets)
	if err != nil {
		t.Fatal(err)
	}
	for _, origins := range []bool{false, true} {
		var out strings.Builder
		if err := WriteTOML(&out, settings, origins); err != nil {
			t.Fatal(err)
		}
		got, _, err := Parse("job.toml", "/jobs", []byte(out.String()), nil)
		if err != nil {
			t.Fatalf("%v in\n%s", err, out.String())
		}
		slices.SortFunc(got.Slurm.List, byName)
		slices.SortFunc(want.Slurm.List, byName)
		if want.defaults = nil; !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v\nwant %+v\nof\n%s", got, want, out.String())
		}
		if strings.ContainsAny(out.String(), "\u202e\u0085\x01\x7f") {
			t.Errorf("what a terminal may obey is printed: %q", out.String())
		}
	}
}

// TestBadDefaultsAreFaults checks what files of defaults may not contain. Each fault has its position.
func TestBadDefaultsAreFaults(t *testing.T) {
	for _, test := range []struct {
		name string
		file rundir.DefaultsFile
		want string
	}{
		{"no TOML", site("[slurm\n"), "/etc/ddpbatch.toml:1:7: "},
		{"an unknown key", user("slurm.nods = 2\n"), "/home/ann/config.toml:1:7: unknown key slurm.nods: did you mean slurm.nodes?"},
		{"a value of the wrong type", site("[launch]\ngrace = 5\n"), "/etc/ddpbatch.toml:2:1: launch.grace must be a duration"},
		{"another schema", site("schema = 2\nslurm.nods = 1\n"), "/etc/ddpbatch.toml:1:1: this ddpbatch reads schema 1, not 2"},
		{"a key of one job", user("name = \"x\"\n"),
			"/home/ann/config.toml:1:1: name belongs in a job file: this file is for what many jobs have in common"},
		{"a table of one job", user("\n[train]\nepochs = 3\n"), "/home/ann/config.toml:2:2: [train] belongs in a job file"},
		{"a key of a table that is for one job", user("launch = { command = [\"true\"] }\n"),
			"/home/ann/config.toml:1:12: launch.command belongs in a job file"},
		{"a sweep", site("[sweep]\nseed = [1, 2]\n"), "/etc/ddpbatch.toml:1:2: [sweep] belongs in a job file"},
		{"a relative path", site("run_dir = \"runs\"\n"), `/etc/ddpbatch.toml:1:1: run_dir = "runs" is a relative path`},
		{"another's home", site("setup.venv = \"~ann/venv\"\n"), `/etc/ddpbatch.toml:1:7: setup.venv = "~ann/venv" is a relative path`},
		{"forbid of the user's", user("[forbid]\n\"slurm.qos\" = \"no\"\n"),
			"/home/ann/config.toml:1:2: [forbid] is allowed only in the site's file"},
		{"forbid that is not a table", site("forbid = 3\n"), "/etc/ddpbatch.toml:1:1: forbid must be a table, not 3"},
		{"forbid of an unknown key", site("[forbid]\n\"slurm.nods\" = \"no\"\n"),
			"/etc/ddpbatch.toml:2:1: [forbid]: unknown key slurm.nods: did you mean slurm.nodes?"},
		{"forbid of all variables", site("[forbid]\nsetup.env.\"*\" = \"no\"\n"),
			`/etc/ddpbatch.toml:2:11: [forbid]: to forbid all keys of a table, write the table: "setup.env"`},
		{"forbid of all variables, in one word", site("[forbid]\n\"setup.env.*\" = \"no\"\n"),
			`/etc/ddpbatch.toml:2:1: [forbid]: to forbid all keys`},
		{"forbid below a key", site("[forbid]\n\"slurm.nodes.x\" = \"no\"\n"),
			"/etc/ddpbatch.toml:2:1: [forbid]: unknown key slurm.nodes.x"},
		{"forbid without a sentence", site("[forbid]\n\"slurm.nodes\" = \"\"\n"),
			"/etc/ddpbatch.toml:2:1: forbid.\"slurm.nodes\" must be one line of text"},
		{"forbid with true", site("[forbid]\nslurm.nodes = true\n"),
			"/etc/ddpbatch.toml:2:7: forbid.slurm.nodes must be one line of text that says what to do instead, not true"},
		{"too large", site(strings.Repeat("#\n", maxSize)),
			"/etc/ddpbatch.toml:1:1: the file is too long: a file of defaults may have at most 256 KiB"},
	} {
		t.Run(test.name, func(t *testing.T) {
			d, err := ParseDefaults(test.file)
			var faults Faults
			if d != nil || !errors.As(err, &faults) || len(faults) != 1 || !strings.HasPrefix(faults[0].String(), test.want) {
				t.Errorf("got %v\nwant %s", err, test.want)
			}
		})
	}
}

// TestFaultsOfAJobNameTheDefaults: if settings contradict each other, the fault has the position of the setting, in whichever file that is.
func TestFaultsOfAJobNameTheDefaults(t *testing.T) {
	d, err := ParseDefaults(site("[launch]\nmin_nodes = 4\n"))
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = d.Parse("job.toml", "/jobs", []byte("name = \"x\"\nslurm.nodes = 2\nlaunch.hang = 1\n"+command), []string{"mpi.x=1"})
	want := "job.toml:3:8: launch.hang must be a duration, such as \"90s\" or \"5m\", or \"0s\" for none, not 1\n" +
		"/etc/ddpbatch.toml:2:1: launch.min_nodes = 4 is more than slurm.nodes = 2\n" +
		"--set mpi.x: unknown key mpi.x; known here: algorithm, deterministic, encrypt, timeout, transport"
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

// TestForbiddenKeysAreRefused: the site's sentence appears wherever a forbidden key is set, and nowhere else.
func TestForbiddenKeysAreRefused(t *testing.T) {
	const forbid = "[forbid]\n\"slurm.exclusive\" = \"write to hpc@site\"\nsetup.script = \"modules only\"\n\"setup.env.LD_PRELOAD\" = " +
		"\"no\"\n\"checkpoint\" = \"kept by us\"\n"
	const file = "/etc/ddpbatch.toml"
	whole := func(what, sentence string, line, column int) string {
		return fmt.Sprintf("%s is not for jobs of this site: %s (%s:%d:%d)", what, sentence, file, line, column)
	}
	exclusive := func(what string) string { return whole(what, "write to hpc@site", 2, 1) }
	for _, test := range []struct {
		name, user, job string
		sets            []string
		want            string // empty: no fault
	}{
		{"other keys", "slurm.qos = \"a\"\n", "slurm.nodes = 2\n", []string{"setup.env.A=1"}, ""},
		{"a job's key", "", "slurm.exclusive = true\n", nil, "job.toml:2:7: " + exclusive("slurm.exclusive")},
		{"though it asks for nothing", "", "[slurm]\nexclusive = false\n", nil, "job.toml:3:1: " + exclusive("slurm.exclusive")},
		{"the user's key", "slurm.exclusive = true\n", "", nil, "/home/ann/config.toml:1:7: " + exclusive("slurm.exclusive")},
		{"an override", "", "", []string{"slurm.nodes=1", "slurm.exclusive=true"}, "--set slurm.exclusive: " +
			exclusive("slurm.exclusive")},
		{"an override of its table", "", "", []string{"slurm={exclusive=true}"}, "--set slurm: " + exclusive("slurm.exclusive")},
		{"a word for sbatch", "", "slurm.extra = [\"--switches=1\", \"--exclusive=user\"]\n", nil, "job.toml:2:7: " +
			exclusive(`"--exclusive=user" of slurm.extra`)},
		{"a word for sbatch, cut short", "", "", []string{`slurm.extra=["--excl"]`}, "--set slurm.extra: " +
			exclusive(`"--excl" of slurm.extra`)},
		{"a word for sbatch that begins in the same way", "", "slurm.extra = [\"--exclude=n1\"]\n", nil, ""},
		{"a key written below its table", "", "setup.script = [\"x\"]\n", nil, "job.toml:2:7: " +
			whole("setup.script", "modules only", 3, 7)},
		{"a variable", "", "setup.env = { LD_PRELOAD = \"x\" }\n", nil, "job.toml:2:15: " + whole("setup.env.LD_PRELOAD", "no", 4, 1)},
		{"what leaves it out", "", "", []string{`slurm.skip=["--exclusive"]`}, "--set slurm.skip: " +
			exclusive(`"--exclusive" of slurm.skip`)},
		{"a whole table", "", "[checkpoint]\nasync = true\n", nil, "job.toml:2:2: " + whole("[checkpoint]", "kept by us", 5, 1)},
		{"a key that is swept", "", "[sweep]\n\"setup.env.LD_PRELOAD\" = [\"x\", \"y\"]\n", nil, "job.toml:3:1: " +
			whole("setup.env.LD_PRELOAD", "no", 4, 1)},
		{"a key of a table, swept", "", "sweep.checkpoint.keep_last = [2, 3]\n", nil, "job.toml:2:18: " +
			whole("checkpoint.keep_last", "kept by us", 5, 1)},
		{"a key that an override sweeps", "", "", []string{"sweep.setup.env.LD_PRELOAD=[\"x\"]"}, "--set sweep.setup.env.LD_PRELOAD: " +
			whole("setup.env.LD_PRELOAD", "no", 4, 1)},
		{"a whole table by one of its keys", "", "", []string{"checkpoint.async=true"}, "--set checkpoint.async: " +
			whole("[checkpoint]", "kept by us", 5, 1)},
	} {
		t.Run(test.name, func(t *testing.T) {
			d, err := ParseDefaults(site(forbid), user(test.user))
			if err == nil {
				_, _, err = d.Parse("job.toml", "/jobs", []byte("name = \"x\"\n"+test.job+command), test.sets)
			}
			if got := fmt.Sprint(err); test.want == "" && err != nil || test.want != "" && got != test.want {
				t.Errorf("got %v\nwant %s", got, test.want)
			}
			if err := d.CheckSets(test.sets); d != nil && strings.HasPrefix(test.want, "--set") != (err != nil) {
				t.Errorf("the overrides alone: %v", err)
			}
			if d == nil {
				return
			}
			if _, _, err := d.FreeSets().Parse("job.toml", "/jobs", []byte("name = \"x\"\n"+command), test.sets); err != nil {
				t.Errorf("overrides that are free: %v", err)
			}
		})
	}
}

// TestForbiddenOptionsAreNotAskedForByOtherKeys: if a site forbids an option of sbatch, no other key can set that option.
func TestForbiddenOptionsAreNotAskedForByOtherKeys(t *testing.T) {
	d, err := ParseDefaults(site("[forbid]\n\"slurm.array\" = \"no arrays\"\n\"slurm.dependency\" = \"no waiting\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	const sweep = "[sweep], which makes an array, is not for jobs of this site: no arrays (/etc/ddpbatch.toml:2:1)"
	const chain = "slurm.chain, whose links depend on each other, is not for jobs of this site: no waiting (/etc/ddpbatch.toml:3:1)"
	for _, test := range []struct {
		job  string
		sets []string
		want string // empty: no fault
	}{
		{"[sweep]\n\"setup.env.A\" = [\"x\", \"y\"]\n", nil, "job.toml:2:2: " + sweep},
		{"", []string{`sweep.setup.env.A=["x"]`}, "--set sweep.setup.env.A: " + sweep},
		{"", []string{"sweep={}"}, ""},
		{"slurm.chain = 3\n", nil, "job.toml:2:7: " + chain},
		{"", []string{"slurm.chain=2"}, "--set slurm.chain: " + chain},
		{"", []string{"slurm.chain=1"}, ""},
	} {
		_, _, err := d.Parse("job.toml", "/jobs", []byte("name = \"x\"\n"+test.job+command), test.sets)
		if got := fmt.Sprint(err); test.want == "" && err != nil || test.want != "" && got != test.want {
			t.Errorf("%q, %q: got %v\nwant %s", test.job, test.sets, err, test.want)
		}
	}
	var none *Defaults
	if err := d.CheckFlag("--after", "dependency"); fmt.Sprint(err) !=
		"--after is not for jobs of this site: no waiting (/etc/ddpbatch.toml:3:1)" || d.CheckFlag("--x", "time") != nil ||
		none.CheckFlag("--after", "dependency") != nil {
		t.Errorf("the flag: %v", err)
	}
}

func TestForbiddenWordsAreRefused(t *testing.T) {
	d, err := ParseDefaults(site("[forbid]\n\"slurm.partition\" = \"the site chooses\"\n\"slurm.hold\" = \"no\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	for word, refused := range map[string]bool{
		"--partition=x": true, "--part=x": true, "-px": true, "-p": true, "-Hpx": true, "-H": true, "-sH": true, "--hold": true,
		"--qos=x": false, "-qx": false, "--no-kill": false, "-t10": false, "--prefer=x": false, "-s": false,
	} {
		if err := d.CheckWords([]string{word}); (err != nil) != refused {
			t.Errorf("%s: %v, want a refusal: %v", word, err, refused)
		}
	}
	extra, err := ParseDefaults(site("[forbid]\n\"slurm.extra\" = \"no\"\n"))
	if err != nil || extra.CheckWords([]string{"--qos=x"}) == nil || extra.CheckWords(nil) != nil {
		t.Errorf("where all further words are forbidden: %v", err)
	}
}

// TestRecordedDefaultsForbidNothing: the settings of a submitted run have been checked already, so its recorded defaults forbid nothing.
func TestRecordedDefaultsForbidNothing(t *testing.T) {
	files := []rundir.DefaultsFile{site("slurm.qos = \"a\"\n[forbid]\n\"slurm.nodes\" = \"no\"\n")}
	d, err := RecordedDefaults(files)
	if err != nil {
		t.Fatal(err)
	}
	job, _, err := d.Parse("job.toml", "/jobs", []byte("name = \"x\"\nslurm.nodes = 2"+command), nil)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := job.Spec(rundir.Spec{})
	if qos, _ := job.Slurm.Get("qos"); err != nil || qos != "a" || !reflect.DeepEqual(spec.Defaults, files) {
		t.Errorf("qos %q, %+v, %v", qos, spec.Defaults, err)
	}
}

// TestShownSettingsHideSecrets: the output of config show may be shown to others.
func TestShownSettingsHideSecrets(t *testing.T) {
	for _, test := range []struct {
		key         string
		value, want any
	}{
		{"setup.env.WANDB_API_KEY", "abc", "***"},
		{"setup.env.A", "TOKEN=abc d", "TOKEN=*** d"},
		{"setup.script", []any{"export TOKEN=abc; echo x", "y"}, []any{"export TOKEN=***; echo x", "y"}},
		{"launch.command", []any{"x", "--token=abc d", "n=1"}, []any{"x", "--token=***", "n=1"}},
		{"launch.command", []any{"x", "--api-key", "sk-abcdefgh", int64(1)}, []any{"x", "--api-key", "***", int64(1)}},
		{"launch.check", []any{[]any{"nhc"}, []any{"curl", "--token", "hf_abcdefgh"}},
			[]any{[]any{"nhc"}, []any{"curl", "--token", "***"}}},
		{"slurm.nodes", int64(2), int64(2)},
	} {
		if got := (Setting{Key: test.key, Value: test.value}).Redacted().Value; !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: got %v, want %v", test.key, got, test.want)
		}
	}
}

// FuzzDefaults: whatever two files hold, nothing panics, faults have their positions, and what is shown of the files can be read again with
// the same meaning.
func FuzzDefaults(f *testing.F) {
	f.Add("[slurm]\nnodes = 2\n[forbid]\n\"slurm.qos\" = \"no\"", "setup.env = { A = \"\\u0085\" }", "slurm.time=10")
	f.Add("[forbid]\n\"\" = \"x\"\n\"a.b\" = 1\nslurm.x.y = \"z\"", "forbid = []", "slurm={a=1}")
	f.Add("slurm = 3\nschema = 1", "slurm.skip = []\nrun_dir = \"~\"", "a=")
	f.Add("[[slurm]]\n[setup]\nvenv = 3", "[setup.env]\n\"=\" = 1", "=")
	f.Fuzz(func(t *testing.T, siteText, userText, set string) {
		d, err := ParseDefaults(site(siteText), user(userText))
		var faults Faults
		if (d == nil) != (err != nil) || err != nil && (!errors.As(err, &faults) || len(faults) == 0) {
			t.Fatalf("defaults %v, error %v", d, err)
		}
		for _, fault := range faults {
			if fault.Line < 1 || fault.Column < 1 {
				t.Errorf("%+v has no place", fault)
			}
		}
		if d == nil {
			return
		}
		_, _, err = d.Parse("job.toml", "/jobs", []byte("name = \"x\""+command), []string{set})
		if err != nil && !errors.As(err, &faults) {
			t.Errorf("error %v", err)
		}
		before := shown(t, d)
		again, err := ParseDefaults(user(withoutOrigins(t, d)))
		if err != nil {
			t.Fatalf("%v in\n%s", err, before)
		}
		if first, second := withoutOrigins(t, d), withoutOrigins(t, again); first != second {
			t.Errorf("shown\n%s\nread and shown again\n%s", first, second)
		}
	})
}

func withoutOrigins(t *testing.T, d *Defaults) string {
	t.Helper()
	settings, err := d.Settings(nil)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := WriteTOML(&out, settings, false); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func byName(a, b slurm.Option) int { return strings.Compare(a.Name, b.Name) }
