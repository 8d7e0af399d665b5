package container

import "strings"

// enroot is Enroot 3, with which Pyxis runs containers. It does not have an option for the working directory; as it starts images with
// their /bin/sh anyway, the shell changes to it. A variable with a line break cannot be passed, as Enroot writes variables into a file of
// lines.
func enroot() dialect {
	return dialect{program: "enroot", files: true, command: enrootCommand, codes: map[int]string{
		127: "enroot did not find the program in the image",
	}}
}

const enterFolder = `cd "$1" && shift && exec "$@"`

func enrootCommand(c Config, w Worker, binds []Bind) (argv, env []string) {
	argv = []string{"enroot", "start", "--rw"}
	for _, b := range binds {
		mount := b.Source + ":" + b.Target + ":rbind,x-create=auto"
		if b.ReadOnly {
			mount += ",ro"
		}
		argv = append(argv, "--mount", mount)
	}
	v := variablesOf(w)
	for _, entry := range v.inherited {
		if !strings.Contains(entry, "\n") {
			argv = append(argv, "--env", nameOf(entry))
		}
	}
	for _, entry := range v.given {
		argv = append(argv, "--env", entry)
	}
	env = v.outer
	if w.GPUs == NoGPUs {
		argv = append(argv, "--env", "NVIDIA_VISIBLE_DEVICES=void")
	} else if w.GPUs == NVIDIA {
		argv = append(argv, "--env", "NVIDIA_VISIBLE_DEVICES=all")
	}
	argv = append(append(argv, c.Args...), c.Image, "/bin/sh", "-c", enterFolder, "sh", w.Dir)
	return append(argv, w.Argv...), env
}
