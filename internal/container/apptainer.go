package container

import "strings"

// apptainer is Apptainer 1.1 or later, which was called Singularity. Nothing of the host is mounted that the job does not name, but /dev,
// /proc, /sys and /tmp. Variables come in under names of their own, which reach the container literally with --no-eval.
func apptainer() dialect {
	return dialect{program: "apptainer", names: true, folders: true, files: true, command: apptainerCommand, codes: map[int]string{
		255: "apptainer could not start the container, or found no such program in the image",
	}}
}

func apptainerCommand(c Config, w Worker, binds []Bind) (argv, env []string) {
	argv = []string{"apptainer", "exec", "--cleanenv", "--no-eval", "--no-home"}
	switch w.GPUs {
	case NVIDIA:
		argv = append(argv, "--nv")
	case AMD:
		argv = append(argv, "--rocm")
	}
	for _, b := range binds {
		mount := "type=bind,source=" + b.Source + ",destination=" + b.Target
		if b.ReadOnly {
			mount += ",ro"
		}
		argv = append(argv, "--mount="+mount)
	}
	argv = append(argv, "--pwd="+w.Dir)
	v := variablesOf(w)
	env = v.outer
	for _, entry := range append(v.inherited, v.given...) {
		env = append(env, "APPTAINERENV_"+entry)
	}
	argv = append(append(argv, c.Args...), strings.TrimPrefix(c.Image, "file://"))
	return append(argv, w.Argv...), env
}
