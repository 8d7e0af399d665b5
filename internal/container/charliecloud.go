package container

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// charliecloud is Charliecloud 0.26 or later. ch-run execs the worker, which has the environment that ch-run was started with. It
// binds all of /dev and /tmp, so paths below these do not need a bind, and cannot have one.
//
// Each call has a user namespace of its own, unless peers join one. A process cannot look into processes of another user namespace.
func charliecloud() dialect {
	return dialect{program: "ch-run", folders: true, files: true, writesAll: true, command: charliecloudCommand, codes: map[int]string{
		49: "ch-run could not start the container, or did not find the program in the image",
	}}
}

// imagePath is the PATH in the images of most distributions.
const imagePath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func charliecloudCommand(c Config, w Worker, binds []Bind) (argv, env []string) {
	argv = []string{"ch-run", "--env-no-expand"}
	if w.ImageEnv {
		argv = append(argv, "--set-env") // the variables of the image
	}
	for _, b := range Missing(binds) {
		argv = append(argv, "--bind="+b.Source+":"+b.Target)
	}
	if w.Peers > 1 {
		argv = append(argv, "--join-ct="+strconv.Itoa(w.Peers), "--join-tag="+w.Group)
	}
	argv = append(argv, "--cd="+w.Dir)
	v := variablesOf(w)
	for _, entry := range v.given {
		argv = append(argv, "--set-env="+entry)
	}
	env = slices.Concat([]string{imagePath, "USER=" + w.User}, v.inherited) // ch-run refuses to run without USER
	argv = append(append(argv, c.Args...), c.Image, "--")
	return append(argv, w.Argv...), last(env)
}

// Missing returns the binds that ch-run does not make by itself.
func Missing(binds []Bind) []Bind {
	var left []Bind
	for _, b := range binds {
		own := b.Source == b.Target && (isWithin(b.Target, "/tmp") || isWithin(b.Target, "/dev"))
		if !own {
			left = append(left, b)
		}
	}
	return left
}

// HasEnvironment reports whether Charliecloud finds variables in an image that is a folder.
func (c Config) HasEnvironment() bool {
	_, err := os.Stat(filepath.Join(c.Image, "ch", "environment"))
	return err == nil && c.Runtime == Charliecloud
}

// JoinFiles returns the files that ch-run leaves in /dev/shm if not all peers of a group came.
func JoinFiles(group string) []string {
	return []string{"/dev/shm/sem.ch-run_sem-" + group, "/dev/shm/ch-run_shm-" + group}
}
