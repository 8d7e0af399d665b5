package slurm

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Settings maps the names of slurm.conf's settings to their values as "scontrol show config" prints them: "30 sec", "(null)".
type Settings map[string]string

// Settings asks the controller for its configuration.
func (c *Client) Settings(ctx context.Context) (Settings, error) {
	out, err := c.ask(ctx, "scontrol", "show", "config")
	if err != nil {
		return nil, fmt.Errorf("ask for Slurm's configuration: %w", err)
	}
	return parseSettings(out), nil
}

// parseSettings reads lines "Name = value". If a name appears twice, the first one counts: cgroup.conf and the like come later.
func parseSettings(stdout []byte) Settings {
	settings := Settings{}
	for line := range strings.Lines(string(stdout)) {
		if at, isHeading := strings.CutPrefix(strings.TrimSpace(line), asOf); isHeading && settings[asOf] == "" {
			settings[asOf] = at
		}
		name, value, found := strings.Cut(line, "=")
		name = strings.TrimSpace(name)
		if _, known := settings[name]; found && !known {
			settings[name] = strings.TrimSpace(value)
		}
	}
	return settings
}

// asOf is the beginning of the heading; the time of the answer follows it.
const asOf = "Configuration data as of "

// Answered returns when the controller answered, by its clock, in whole seconds. It is zero if the answer does not say.
func (s Settings) Answered() time.Time { return slurmTime(s[asOf]) }

// Get returns the value of a setting, or "" if it has none.
func (s Settings) Get(name string) string {
	if value := s[name]; value != "(null)" && value != "(null type)" {
		return value
	}
	return ""
}

// KillWait returns the time between the SIGTERM and the SIGKILL by which Slurm ends a job.
func (s Settings) KillWait() (time.Duration, error) {
	value, found := s["KillWait"]
	if !found {
		return 0, errors.New("ask for KillWait: Slurm's configuration does not name it")
	}
	number, _, _ := strings.Cut(value, " ")
	seconds, err := strconv.ParseUint(number, 10, 16) // slurm_conf_t has it in 16 bits
	if err != nil {
		return 0, fmt.Errorf("ask for KillWait: Slurm says %s, which is not a number of seconds", clip(value))
	}
	return time.Duration(seconds) * time.Second, nil
}

// Release returns Slurm's version as two numbers: 22 and 5 for "22.05.8". They are zero if the version is unknown.
func (s Settings) Release() (year, month int) {
	first, rest, _ := strings.Cut(s["SLURM_VERSION"], ".")
	second, _, _ := strings.Cut(rest, ".")
	year, err := strconv.Atoi(first)
	if err != nil || year < 0 {
		return 0, 0
	}
	if month, err = strconv.Atoi(second); err != nil || month < 0 {
		return 0, 0
	}
	return year, month
}

// MPIPlugins lists the ways by which srun starts MPI's processes: "pmi2", "pmix", "none".
func (c *Client) MPIPlugins(ctx context.Context) ([]string, error) {
	out, err := c.run(ctx, "srun", "--mpi=list") // in some releases its exit code is not 0 on success
	if err != nil {
		return nil, fmt.Errorf("ask which MPI plugins srun has: %w", err)
	}
	return parseMPIPlugins(string(out.Stdout) + "\n" + string(out.Stderr)), nil
}

// parseMPIPlugins reads the lines after the heading, which have one word each. Old releases print "srun: " before each line.
func parseMPIPlugins(text string) (names []string) {
	for line := range strings.Lines(text) {
		name := strings.TrimSpace(strings.TrimPrefix(line, "srun:"))
		if name != "" && !strings.ContainsAny(name, " .:") {
			names = append(names, name)
		}
	}
	return names
}
