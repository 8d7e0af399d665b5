package container

import "strings"

// apptainer is Apptainer 1.1 or later, formerly called Singularity. Of the host only /dev, /proc, /sys, /tmp and what the job names are
// mounted. Variables are passed with the prefix APPTAINERENV_, and reach the container literally with --no-eval.
func apptainer() dialect {
	return dialect{program: "apptainer", names: true, folders: true, files: true, command: apptainerCommand, codes: map[int]string{
		255: "apptainer could not start the container, or did not find the program in the image",
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
