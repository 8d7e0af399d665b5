package slurm

import (
	"fmt"
	"strings"
)

// AfterAny returns the condition of --dependency that jobs have ended, successfully or not.
func AfterAny(ids []string) string { return "afterany:" + strings.Join(ids, ":") }

// Dependency returns the value of --dependency that sbatch acts on. If there are several, the last one counts; those on sbatch's command
// line, words, come after those of the job file. It is "" if there is none.
func (o Options) Dependency(words []string) string {
	value, _ := o.Get("dependency")
	for _, word := range o.Extra {
		if found, ok := dependencyIn(word); ok {
			value = found
		}
	}
	if o.Skips("dependency") {
		value = ""
	}
	for _, word := range words {
		if found, ok := dependencyIn(word); ok {
			value = found
		}
	}
	return value
}

// dependencyIn returns the value of --dependency in a word of sbatch's command line. sbatch takes an abbreviated name, too.
func dependencyIn(word string) (value string, ok bool) {
	const whole, shortest = "dependency", "dep" // --de could also mean --deadline
	long := strings.HasPrefix(word, "--")
	switch name := extraName(word); {
	case long && len(name) >= len(shortest) && strings.HasPrefix(whole, name):
		_, value, _ = strings.Cut(word, "=")
	case !long && name == "d":
		_, value, _ = strings.Cut(word, "d")
	default:
		return "", false
	}
	return value, true
}

// JoinDependencies joins conditions of --dependency, all of which must hold. It refuses to join conditions separated by "?", of which one
// is enough, with others: sbatch takes one separator, and Slurm 22.05 reads a list with both as if each were a "?".
func JoinDependencies(conditions ...string) (string, error) {
	var all []string
	for _, condition := range conditions {
		if condition != "" {
			all = append(all, condition)
		}
	}
	if len(all) > 1 {
		for _, condition := range all {
			if strings.Contains(condition, "?") {
				return "", fmt.Errorf("dependency %s cannot be joined with the other conditions: Slurm takes either "+
					"\",\" or \"?\" between conditions, not both",
					clip(condition))
			}
		}
	}
	return strings.Join(all, ","), nil
}
