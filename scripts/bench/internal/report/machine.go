package report

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// Stamp says on what and when a comparison was made: the beginning of its header.
type Stamp struct {
	Machine string `json:"machine"`
	Load    string `json:"load"`
	Time    string `json:"time"`
}

// NewStamp is of this machine, now.
func NewStamp() Stamp { return Stamp{machine(), load(), time.Now().Format(time.RFC3339)} }

// Line is the stamp in words.
func (s Stamp) Line() string { return fmt.Sprintf("%s, load %s, %s", s.Machine, s.Load, s.Time) }

// machine is what the program runs on, in a line.
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

// load is how many processes wanted a core in the last minute, on the average.
func load() string {
	text, _ := os.ReadFile("/proc/loadavg")
	load, _, _ := strings.Cut(string(text), " ")
	return load
}
