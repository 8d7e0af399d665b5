package main

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// usagesOf are those of the workers' agents.
func usagesOf(workers []worker) (map[int]usage, error) {
	all := map[int]usage{}
	for _, w := range workers {
		if _, ok := all[w.agent]; ok {
			continue
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.agent))
		if err != nil {
			return nil, fmt.Errorf("look at an agent: %w", err)
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", w.agent))
		if err != nil {
			return nil, fmt.Errorf("look at an agent: %w", err)
		}
		u, err := parseUsage(string(status), string(stat))
		if err != nil {
			return nil, fmt.Errorf("look at agent %d: %w", w.agent, err)
		}
		all[w.agent] = u
	}
	return all, nil
}

// usage is what a process uses. Memory is in MB, of 1,000,000 bytes.
type usage struct {
	resident, highest, own float64
	cpu                    time.Duration
}

// clockTick is the unit of times in /proc/PID/stat: USER_HZ is 100 wherever Go runs on Linux.
const clockTick = 10 * time.Millisecond

// parseUsage reads /proc/PID/status and /proc/PID/stat (proc(5)).
func parseUsage(status, stat string) (u usage, err error) {
	for name, to := range map[string]*float64{"VmRSS": &u.resident, "VmHWM": &u.highest, "RssAnon": &u.own} {
		_, rest, found := strings.Cut("\n"+status, "\n"+name+":")
		if _, err := fmt.Sscanf(rest, "%f kB", to); !found || err != nil {
			return u, fmt.Errorf("its status does not tell %s", name)
		}
		*to *= 1024 / 1e6
	}
	var user, system int64
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:]) // fields[i] is the one that proc(5) numbers i+3
	if len(fields) < 13 {
		return u, fmt.Errorf("%.80q is no line of /proc/PID/stat", stat)
	}
	if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err != nil {
		return u, fmt.Errorf("%.80q is no line of /proc/PID/stat", stat)
	}
	u.cpu = time.Duration(user+system) * clockTick
	return u, nil
}
