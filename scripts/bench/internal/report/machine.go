package report

import (
	"fmt"
	"os"
	"runtime"
	"strings"
)

// Machine is what the program runs on, in a line.
func Machine() string {
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

// Load is how many processes wanted a core in the last minute, on the average.
func Load() string {
	text, _ := os.ReadFile("/proc/loadavg")
	load, _, _ := strings.Cut(string(text), " ")
	return load
}
