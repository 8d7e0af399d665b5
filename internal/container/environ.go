package container

import (
	"slices"
	"strings"
)

// hostVariables say where things are on the host, or belong to a session there. An image has its own or does not need them.
var hostVariables = []string{
	"PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "LD_AUDIT", "LIBRARY_PATH", "CPATH", "C_INCLUDE_PATH",
	"CPLUS_INCLUDE_PATH", // programs and libraries
	"PKG_CONFIG_PATH", "CMAKE_PREFIX_PATH", "CUDA_HOME", "CUDA_PATH", "ROCM_PATH", "ROCM_HOME", "JAVA_HOME", "LOCPATH",
	"PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONUSERBASE", "VIRTUAL_ENV", // Python's
	"MANPATH", "INFOPATH", "MODULEPATH", "MODULESHOME", "MODULES_CMD", "LOADEDMODULES", "_LMFILES_", // modules
	"HOME", "PWD", "OLDPWD", "TMPDIR", "TMP", "TEMP", "SHELL", "SHLVL", "HOSTNAME", "TERM", "_", "BASH_ENV", "ENV", "IFS", // the shell's
	"DISPLAY", "XAUTHORITY", "KRB5CCNAME", "MAIL", "EDITOR", "PAGER", "LESSOPEN", "LESSCLOSE", "LS_COLORS", // a session's
}

// hostPrefixes are the prefixes of the names of further host variables.
var hostPrefixes = []string{
	"CONDA_", "_CE_", "LMOD_", "__LMOD_", "__MODULES_", "_ModuleTable", "SPACK_", "EBROOT", "EBVERSION", "EBDEVEL",
	"XDG_", "DBUS_", "SSH_", "SYSTEMD_",
	"CONTAINERS_", "REGISTRY_", "APPTAINER", "SINGULARITY", "ENROOT_", "DOCKER_", "CH_IMAGE_", // of runtimes, for themselves
}

// IsHostVariable reports whether a variable says where something is on the host. Workers in a container do not get such a variable, unless
// the job file gives it a value.
func IsHostVariable(name string) bool {
	return slices.Contains(hostVariables, name) ||
		slices.ContainsFunc(hostPrefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// variables holds the worker's variables, in two parts, and the runtime's. If a name appears several times, the last value counts, as for
// exec.
type variables struct {
	inherited []string // NAME=value: the runtime passes these on from its own environment
	given     []string // NAME=value: host variables to which the job file gives a value
	outer     []string // NAME=value: the runtime's own environment, including inherited
}

// variablesOf splits the worker's environment.
func variablesOf(w Worker) variables {
	var v variables
	for _, entry := range last(w.Env) {
		name, _, _ := strings.Cut(entry, "=")
		switch host := IsHostVariable(name); {
		case !host && isName(name):
			v.inherited = append(v.inherited, entry)
		case host && slices.Contains(w.Given, name):
			v.given = append(v.given, entry)
		}
	}
	for _, entry := range last(w.Outer) {
		if name, _, _ := strings.Cut(entry, "="); IsHostVariable(name) {
			v.outer = append(v.outer, entry)
		}
	}
	v.outer = append(v.outer, v.inherited...)
	return v
}

// last keeps only the last value of each name, in the order in which the names first appear.
func last(env []string) []string {
	at := map[string]int{}
	var all []string
	for _, entry := range env {
		name, _, ok := strings.Cut(entry, "=")
		if !ok || name == "" {
			continue
		}
		if i, again := at[name]; again {
			all[i] = entry
			continue
		}
		at[name] = len(all)
		all = append(all, entry)
	}
	return all
}

// isName reports whether a variable has a name that is valid in shells. Other names, such as those of bash's functions, are not passed on.
func isName(name string) bool {
	for i, r := range name {
		letter := r == '_' || 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}

// nameOf returns the name of a NAME=value.
func nameOf(entry string) string {
	name, _, _ := strings.Cut(entry, "=")
	return name
}
