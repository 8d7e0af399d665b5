package report

import (
	"os/exec"
	"path/filepath"
	"strings"
)

// CommandLine is a launch as a person would type it, without the folders of its programs and files.
func CommandLine(cmd *exec.Cmd) string {
	var line []string
	for _, variable := range cmd.Env {
		name, value, _ := strings.Cut(variable, "=")
		line = append(line, name+"="+filepath.Base(value))
	}
	for _, word := range cmd.Args {
		line = append(line, filepath.Base(word))
	}
	return strings.Join(line, " ")
}
