package container

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// podman is Podman 4 or later. It does not pull the image: every rank of every node would do so at once.
//
// Containers of users other than root stay in the agent's cgroup, as these users may not make cgroups. That needs the manager cgroupfs,
// since systemd would move them below a slice of its own. For root Podman makes cgroups, and the agent moves their processes back.
func podman() dialect {
	return dialect{program: "podman", monitor: true, shm: true, names: true, folders: true, command: podmanCommand,
		codes: ociCodes("podman")}
}

func podmanCommand(c Config, w Worker, binds []Bind) (argv, env []string) {
	argv = []string{"podman", "--cgroup-manager=cgroupfs", "run", "--replace", "--cgroups=no-conmon", "--log-driver=none"}
	switch w.GPUs {
	case NVIDIA:
		argv = append(argv, "--device=nvidia.com/gpu=all") // the container device interface
	case AMD:
		argv = append(argv, "--device=/dev/kfd", "--device=/dev/dri")
	}
	if !slices.ContainsFunc(c.Args, func(word string) bool { return strings.HasPrefix(word, "--user") }) { // or --userns
		argv = append(argv, "--user=0:0") // root in the container is the caller outside; other users of the image are not
	}
	argv, env = ociWords(argv, c, w, binds)
	if c.IsPath() {
		return append(append(argv, "--rootfs", c.Image+":O"), w.Argv...), env // each container has an overlay of its own
	}
	return append(append(argv, c.Image), w.Argv...), env
}

// docker is Docker. Its daemon starts the container, outside the job's cgroup, so the command line has to name the cores.
func docker() dialect {
	return dialect{program: "docker", monitor: true, shm: true, names: true, command: dockerCommand, codes: ociCodes("docker")}
}

func dockerCommand(c Config, w Worker, binds []Bind) (argv, env []string) {
	argv = []string{"docker", "run", "--log-driver=none", "--user=" + strconv.Itoa(w.UID) + ":" + strconv.Itoa(w.GID)}
	if w.Cores != "" {
		argv = append(argv, "--cpuset-cpus="+w.Cores)
	}
	switch w.GPUs {
	case NVIDIA:
		argv = append(argv, "--gpus=all")
	case AMD:
		argv = append(argv, "--device=/dev/kfd", "--device=/dev/dri")
	}
	argv, env = ociWords(argv, c, w, binds)
	return append(append(argv, c.Image), w.Argv...), env
}

// ociWords appends the arguments that Podman and Docker have in common, up to the image. --init is not among them: with the node's process
// ids the worker is not process 1 of its namespace, so signals end it as they do outside.
func ociWords(argv []string, c Config, w Worker, binds []Bind) (words, env []string) {
	argv = append(argv, "--rm", "--pull=never", "--name="+w.Name, "--network=host", "--pid=host",
		"--security-opt=label=disable", "--entrypoint=")
	if c.ShmSize > 0 {
		argv = append(argv, "--shm-size="+strconv.FormatInt(c.ShmSize, 10)+"b")
	} else {
		argv = append(argv, "--ipc=host")
	}
	for _, l := range w.Limits {
		argv = append(argv, fmt.Sprintf("--ulimit=%s=%d:%d", l.Name, int64(l.Soft), int64(l.Hard))) // -1: unlimited
	}
	for _, b := range binds {
		mount := "--mount=type=bind,source=" + b.Source + ",destination=" + b.Target
		if b.ReadOnly {
			mount += ",readonly"
		}
		argv = append(argv, mount)
	}
	argv = append(argv, "--workdir="+w.Dir)
	v := variablesOf(w)
	for _, entry := range v.inherited {
		argv = append(argv, "--env="+nameOf(entry))
	}
	for _, entry := range v.given {
		argv = append(argv, "--env="+entry)
	}
	return append(argv, c.Args...), v.outer
}

// ociCodes returns the exit codes that podman-run(1) and docker run document.
func ociCodes(program string) map[int]string {
	return map[int]string{
		125: program + " could not start the container",
		126: program + " found the program in the image, but could not run it: is it executable (chmod +x)?",
		127: program + " did not find the program in the image",
	}
}

// shortName makes a part of a container's name from a text: it keeps letters, digits, . and -, and replaces the rest by _.
func shortName(text string) string {
	return strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '.' || r == '-' {
			return r
		}
		return '_'
	}, text)
}

// Name returns the name of a worker's container, which is the same in the next attempt. If a killed agent has left a container of that
// name, Podman replaces it. With Docker, whose daemon removes containers that have ended, the next attempt fails and removes it, and the
// one after that begins.
func Name(run, host string, localRank int) string {
	return fmt.Sprintf("ddpbatch-%s-%s-%d", shortName(run), shortName(host), localRank)
}
