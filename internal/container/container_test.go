package container

import (
	"slices"
	"strings"
	"testing"
)

// worker is one of the two ranks of a node, with what a job gives it.
var worker = Worker{
	Argv: []string{"python3", "train.py", "--name", "two words"},
	Env: []string{"PATH=/usr/bin", "HOME=/home/ann", "RANK=1", "GREETING=two\nlines", "BASH_FUNC_ml%%=() { :; }", "PYTHONPATH=/inside",
		"RANK=3"},
	Given: []string{"GREETING", "PYTHONPATH"},
	Outer: []string{"PATH=/usr/bin", "HOME=/home/ann", "PYTHONPATH=/outside", "SLURM_JOB_ID=7"},
	Dir:   "/proj/code",
	Binds: []Bind{{Source: "/proj/code", Target: "/proj/code"}, {Source: "/proj/code/runs/r1", Target: "/proj/code/runs/r1"},
		{Source: "/dev/shm/agent", Target: "/dev/shm/agent"}, {Source: "/home/ann/.config/ddpbatch/key",
			Target: "/home/ann/.config/ddpbatch/key", ReadOnly: true}},
	Name: "ddpbatch-7-n1-1", GPUs: NVIDIA, Limits: []Limit{{"nofile", 1024, 4096}, {"memlock", 1<<64 - 1, 1<<64 - 1}},
	Cores: "2,3", User: "ann", UID: 1000, GID: 100, Peers: 2, Group: "ddpbatch-00ff",
}

// The expected lines come from the manuals of the runtimes, which document each word.
func TestLineOfEachRuntime(t *testing.T) {
	mounts := []string{"/data:/mnt/data:ro"}
	oci := []string{"--rm", "--pull=never", "--name=ddpbatch-7-n1-1", "--network=host", "--pid=host", "--security-opt=label=disable",
		"--entrypoint=", "--ipc=host", "--ulimit=nofile=1024:4096", "--ulimit=memlock=-1:-1",
		"--mount=type=bind,source=/dev/shm/agent,destination=/dev/shm/agent",
		"--mount=type=bind,source=/home/ann/.config/ddpbatch/key,destination=/home/ann/.config/ddpbatch/key,readonly",
		"--mount=type=bind,source=/data,destination=/mnt/data,readonly", "--mount=type=bind,source=/proj/code,destination=/proj/code",
		"--workdir=/proj/code", "--env=RANK", "--env=GREETING", "--env=PYTHONPATH=/inside"}
	outer := []string{"PATH=/usr/bin", "HOME=/home/ann", "PYTHONPATH=/outside", "RANK=3", "GREETING=two\nlines"}
	for _, tc := range []struct {
		config Config
		argv   []string // without the worker's own command
		env    []string
	}{
		{Config{Runtime: Podman, Image: "torch:2", Args: []string{"--userns=keep-id"}}, slices.Concat(
			[]string{"podman", "--cgroup-manager=cgroupfs", "run", "--replace", "--cgroups=no-conmon", "--log-driver=none",
				"--device=nvidia.com/gpu=all"}, oci, []string{"--userns=keep-id", "torch:2"}), outer},
		{Config{Runtime: Docker, Image: "torch:2"}, slices.Concat(
			[]string{"docker", "run", "--log-driver=none", "--user=1000:100", "--cpuset-cpus=2,3", "--gpus=all"}, oci, []string{"torch:2"}),
			outer},
		{Config{Runtime: Apptainer, Image: "/img/torch.sif"}, []string{
			"apptainer", "exec", "--cleanenv", "--no-eval", "--no-home", "--nv",
			"--mount=type=bind,source=/dev/shm/agent,destination=/dev/shm/agent",
			"--mount=type=bind,source=/home/ann/.config/ddpbatch/key,destination=/home/ann/.config/ddpbatch/key,ro",
			"--mount=type=bind,source=/data,destination=/mnt/data,ro", "--mount=type=bind,source=/proj/code,destination=/proj/code",
			"--pwd=/proj/code", "/img/torch.sif"},
			append(slices.Clone(outer), "APPTAINERENV_RANK=3", "APPTAINERENV_GREETING=two\nlines", "APPTAINERENV_PYTHONPATH=/inside")},
		{Config{Runtime: Enroot, Image: "/img/torch.sqsh"}, []string{
			"enroot", "start", "--rw", "--mount", "/dev/shm/agent:/dev/shm/agent:rbind,x-create=auto",
			"--mount", "/home/ann/.config/ddpbatch/key:/home/ann/.config/ddpbatch/key:rbind,x-create=auto,ro",
			"--mount", "/data:/mnt/data:rbind,x-create=auto,ro", "--mount", "/proj/code:/proj/code:rbind,x-create=auto",
			"--env", "RANK", "--env", "PYTHONPATH=/inside", "--env", "NVIDIA_VISIBLE_DEVICES=all", "/img/torch.sqsh",
			"/bin/sh", "-c", `cd "$1" && shift && exec "$@"`, "sh", "/proj/code"}, outer},
		{Config{Runtime: Charliecloud, Image: "/img/torch"}, []string{
			"ch-run", "--env-no-expand", "--bind=/home/ann/.config/ddpbatch/key:/home/ann/.config/ddpbatch/key", "--bind=/data:/mnt/data",
			"--bind=/proj/code:/proj/code", "--join-ct=2", "--join-tag=ddpbatch-00ff", "--cd=/proj/code", "--set-env=PYTHONPATH=/inside",
			"/img/torch", "--"},
			[]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "USER=ann", "RANK=3", "GREETING=two\nlines"}},
	} {
		tc.config.Mounts = mounts
		argv, env, err := tc.config.Command(worker)
		if want := slices.Concat(tc.argv, worker.Argv); err != nil || !slices.Equal(argv, want) {
			t.Errorf("%s: %v\n%q\nwant\n%q", tc.config.Runtime, err, argv, want)
		}
		if !slices.Equal(env, tc.env) {
			t.Errorf("%s has the environment\n%q\nwant\n%q", tc.config.Runtime, env, tc.env)
		}
	}
}

func TestLineSaysWhatDiffers(t *testing.T) {
	for _, tc := range []struct {
		name   string
		config Config
		change func(*Worker)
		has    []string
		hasNot string // no word may begin with this
	}{
		{"a /dev/shm of its own", Config{Runtime: Podman, Image: "a", ShmSize: 8 << 30}, nil, []string{"--shm-size=8589934592b"}, "--ipc"},
		{"a folder is the image", Config{Runtime: Podman, Image: "/img/a"}, nil, []string{"--rootfs", "/img/a:O"}, ""},
		{"no GPUs", Config{Runtime: Docker, Image: "a"}, func(w *Worker) { w.GPUs = NoGPUs }, nil, "--gpus"},
		{"AMD's GPUs", Config{Runtime: Podman, Image: "a"}, func(w *Worker) { w.GPUs = AMD }, []string{"--device=/dev/kfd",
			"--device=/dev/dri"}, "--device=nvidia"},
		{"AMD's GPUs", Config{Runtime: Apptainer, Image: "a"}, func(w *Worker) { w.GPUs = AMD }, []string{"--rocm"}, "--nv"},
		{"no GPUs", Config{Runtime: Enroot, Image: "a"}, func(w *Worker) { w.GPUs = NoGPUs }, []string{"NVIDIA_VISIBLE_DEVICES=void"},
			"NVIDIA_VISIBLE_DEVICES=all"},
		{"one rank a node", Config{Runtime: Charliecloud, Image: "a"}, func(w *Worker) { w.Peers = 1 }, nil, "--join"},
		{"the image's variables", Config{Runtime: Charliecloud, Image: "a"}, func(w *Worker) { w.ImageEnv = true }, []string{"--set-env"},
			"--set-env=PATH"},
	} {
		w := worker
		if tc.change != nil {
			tc.change(&w)
		}
		argv, _, err := tc.config.Command(w)
		missing := slices.ContainsFunc(tc.has, func(word string) bool { return !slices.Contains(argv, word) })
		wrong := tc.hasNot != "" && slices.ContainsFunc(argv, func(word string) bool { return strings.HasPrefix(word, tc.hasNot) })
		if err != nil || missing || wrong {
			t.Errorf("%s: %v\n%q\nwant %q and no %s", tc.name, err, argv, tc.has, tc.hasNot)
		}
	}
}

// No secret is on a command line, because all users of a node may read command lines.
func TestValuesAreOnNoCommandLine(t *testing.T) {
	w := worker
	w.Env = append(slices.Clone(w.Env), "DDPBATCH_SECRET=0123456789")
	for _, runtime := range Runtimes() {
		argv, env, err := Config{Runtime: runtime, Image: "/a"}.Command(w)
		if err != nil || strings.Contains(strings.Join(argv, " "), "0123456789") ||
			!strings.Contains(strings.Join(env, " "), "0123456789") {
			t.Errorf("%s: %v, %q with %q", runtime, err, argv, env)
		}
	}
}

func FuzzWordsComeThrough(f *testing.F) {
	f.Add("train.py", "two\nlines")
	f.Add("--", "$(reboot)")
	f.Add("", "'\"\\")
	f.Add("--rm=false", "%s,")
	f.Fuzz(func(t *testing.T, word, value string) {
		if strings.Contains(word+value, "\x00") {
			return // no argument or variable of a process can hold NUL
		}
		w := worker
		w.Argv = []string{"program", word, word}
		w.Env = []string{"VALUE=" + value}
		for _, runtime := range Runtimes() {
			argv, env, err := Config{Runtime: runtime, Image: "/img"}.Command(w)
			if err != nil || len(argv) < 3 || !slices.Equal(argv[len(argv)-3:], w.Argv) {
				t.Errorf("%s: %v: %q ends not as %q", runtime, err, argv, w.Argv)
			}
			hands := slices.ContainsFunc(env, func(entry string) bool { return strings.HasSuffix(entry, "VALUE="+value) })
			if !hands {
				t.Errorf("%s: %q has no VALUE=%q", runtime, env, value)
			}
		}
	})
}

func TestImageIsAPathOrAName(t *testing.T) {
	for _, tc := range []struct {
		runtime, image string
		want           bool
	}{
		{Podman, "docker.io/library/busybox:1", false}, {Podman, "busybox", false}, {Podman, "./image", true}, {Podman, "~/image", true},
		{Podman, "/image", true},
		{Docker, "busybox", false}, {Apptainer, "image.sif", true}, {Apptainer, "docker://busybox", false},
		{Apptainer, "oras://site/a:1", false},
		{Enroot, "image.sqsh", true}, {Charliecloud, "image", true},
	} {
		if got := (Config{Runtime: tc.runtime, Image: tc.image}).IsPath(); got != tc.want {
			t.Errorf("%s, %s: a path is %v, want %v", tc.runtime, tc.image, got, tc.want)
		}
	}
}

func TestValidateNamesTheKey(t *testing.T) {
	for _, tc := range []struct {
		config Config
		says   string // "": the configuration is valid
	}{
		{Config{Runtime: Podman, Image: "a", ShmSize: 1 << 30, Mounts: []string{"/a", "/b:/c:ro"}}, ""},
		{Config{Runtime: Charliecloud, Image: "a", ShmSize: 1 << 30}, "shm_size: charliecloud shares"},
		{Config{Runtime: Docker, Image: "./a.tar"}, "image: docker runs images by their names"},
		{Config{Runtime: Apptainer, Image: "a.sif", Mounts: []string{"/a", "b:/c"}},
			`mounts: item 2: "b:/c": the path "b" is not absolute`},
		{Config{Runtime: Charliecloud, Image: "alpine:3.18"},
			`image: charliecloud takes a folder or a squashfs file, and "alpine:3.18" is the name of an image`},
		{Config{Runtime: Enroot, Image: "docker://alpine"}, `image: enroot takes a squashfs file, and "docker://alpine" is the name`},
		{Config{Runtime: Apptainer, Image: "alpine:3.18"}, `image: apptainer takes a file, a folder or a name with "://", and "alpine`},
		{Config{Runtime: Apptainer, Image: "docker://alpine:3.18"}, ""},
		{Config{Runtime: Podman, Image: "a", Mounts: []string{"/a:/c", "/b", "/b:/c/:ro"}},
			`mounts: item 3: item 1 is at "/c" in the container, too`},
	} {
		err := tc.config.Validate()
		if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%+v: %v; want %q", tc.config, err, tc.says)
		}
	}
}

func TestCodesOfRuntimesAreExplained(t *testing.T) {
	for _, runtime := range Runtimes() {
		c := Config{Runtime: runtime}
		if c.Explain(0) != "" || c.Explain(75) != "" || c.Explain(137) != "" {
			t.Errorf("%s explains a worker's own codes", runtime)
		}
	}
	if got := (Config{Runtime: Podman}).Explain(127); got != "podman did not find the program in the image" {
		t.Error(got)
	}
}

func TestNameOfAContainer(t *testing.T) {
	if got := Name("job 7/step", "n1.example.org", 3); got != "ddpbatch-job_7_step-n1.example.org-3" {
		t.Error(got)
	}
}

// What a runtime cannot do is reported before anything is started.
func TestUnfitKeysAreRefused(t *testing.T) {
	for says, config := range map[string]Config{
		"image: --privileged begins with a dash":             {Runtime: Podman, Image: "--privileged"},
		`mounts: item 1: charliecloud cannot bind read-only`: {Runtime: Charliecloud, Image: "/a", Mounts: []string{"/data:/data:ro"}},
		"mounts: item 1": {Runtime: Podman, Image: "a", Mounts: []string{"data"}},
		"shm_size: charliecloud shares the node's":           {Runtime: Charliecloud, Image: "/a", ShmSize: 1},
		"image: docker runs images by their names, not file": {Runtime: Docker, Image: "/a.tar"},
	} {
		if err := config.Validate(); err == nil || !strings.HasPrefix(strings.ReplaceAll(err.Error(), `"`, ""), says) {
			t.Errorf("%+v: %v, want %q", config, err, says)
		}
	}
	for _, path := range []string{"/a,b", "/a:b", "a"} {
		if _, err := (Config{Runtime: Podman}).AllBinds(Same(path)); err == nil {
			t.Errorf("%q is bound", path)
		}
	}
}
