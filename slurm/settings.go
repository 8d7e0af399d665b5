package slurm

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Settings are those of slurm.conf by their names, as "scontrol show config" writes them: "30 sec", "(null)".
type Settings map[string]string

// Settings asks the controller for its configuration.
func (c *Client) Settings(ctx context.Context) (Settings, error) {
	out, err := c.ask(ctx, "scontrol", "show", "config")
	if err != nil {
		return nil, fmt.Errorf("ask for Slurm's configuration: %w", err)
	}
	return parseSettings(out), nil
}

// parseSettings reads lines "Name = value". Of a name that is there twice the first counts: cgroup.conf and the like come later.
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

// asOf begins the heading, before the time of the answer.
const asOf = "Configuration data as of "

// Answered is when the controller answered, by its clock, in whole seconds; zero where it does not say.
func (s Settings) Answered() time.Time { return slurmTime(s[asOf]) }

// Get is the value of a setting; "" where it has none.
func (s Settings) Get(name string) string {
	if value := s[name]; value != "(null)" && value != "(null type)" {
		return value
	}
	return ""
}

// KillWait is the time between the TERM and the KILL by which Slurm ends a job: "30 sec".
func (s Settings) KillWait() (time.Duration, error) {
	value, found := s["KillWait"]
	if !found {
		return 0, errors.New("ask for KillWait: Slurm's configuration does not name it")
	}
	number, _, _ := strings.Cut(value, " ")
	seconds, err := strconv.ParseUint(number, 10, 16) // slurm_conf_t has it in 16 bits
	if err != nil {
		return 0, fmt.Errorf("ask for KillWait: Slurm says %s, which is no number of seconds", clip(value))
	}
	return time.Duration(seconds) * time.Second, nil
}

// Release is Slurm's version as two numbers: 22, 5 of "22.05.8"; zeros where it does not say.
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
	out, err := c.run(ctx, "srun", "--mpi=list") // its exit code says nothing in some releases
	if err != nil {
		return nil, fmt.Errorf("ask which MPI srun knows: %w", err)
	}
	return parseMPIPlugins(string(out.Stdout) + "\n" + string(out.Stderr)), nil
}

// parseMPIPlugins reads the lines of one word after the heading. Old releases put "srun: " before each line.
func parseMPIPlugins(text string) (names []string) {
	for line := range strings.Lines(text) {
		name := strings.TrimSpace(strings.TrimPrefix(line, "srun:"))
		if name != "" && !strings.ContainsAny(name, " .:") {
			names = append(names, name)
		}
	}
	return names
}
