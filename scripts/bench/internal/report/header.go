package report

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// Header says what was compared, on which machine and how.
type Header struct {
	Machine  string   `json:"machine"`
	Load     string   `json:"load"`
	Time     string   `json:"time"`
	About    []string `json:"about"`    // the versions of the sides
	Commands []string `json:"commands"` // the commands that launch them
	Method   string   `json:"method"`
}

// NewHeader returns a Header for this machine at this time.
func NewHeader(method string) Header {
	return Header{Machine: machine(), Load: load(), Time: time.Now().Format(time.RFC3339), Method: strings.TrimSpace(method)}
}

// Print writes the Header in Markdown.
func (h Header) Print(w io.Writer) {
	fmt.Fprintf(w, "- %s, load %s, %s\n", h.Machine, h.Load, h.Time)
	for _, line := range h.About {
		fmt.Fprintf(w, "- %s\n", line)
	}
	for _, line := range h.Commands {
		fmt.Fprintf(w, "- `%s`\n", line)
	}
	fmt.Fprintf(w, "\n%s\n", h.Method)
}

// machine describes the machine in a line.
func machine() string {
	return fmt.Sprintf("%s, %d cores, %s, Linux %s, %s", cpuModel(), runtime.NumCPU(), osName(), kernel(), runtime.Version())
}

func cpuModel() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

func osName() string {
	text, _ := os.ReadFile("/etc/os-release") // os-release(5)
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(line, "="); name == "PRETTY_NAME" {
			return strings.Trim(strings.TrimSpace(value), `"`)
		}
	}
	return runtime.GOOS
}

func kernel() string {
	text, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return strings.TrimSpace(string(text))
}

// load returns the average number of processes that wanted a core in the last minute.
func load() string {
	text, _ := os.ReadFile("/proc/loadavg")
	load, _, _ := strings.Cut(string(text), " ")
	return load
}

// CommandLine formats a launch as a user would type it, without the directories of its programs and files.
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
