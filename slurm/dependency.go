package slurm

import (
	"fmt"
	"strings"
)

// AfterAny is the condition of --dependency that jobs have ended, however they did.
func AfterAny(ids []string) string { return "afterany:" + strings.Join(ids, ":") }

// Dependency is what sbatch is asked for with --dependency in all: of several, the last counts, those on its command line after those of
// the job file. It is "" where there is none.
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

// dependencyIn is the value of --dependency in a word that sbatch gets; sbatch takes the beginning of the name, too.
func dependencyIn(word string) (value string, ok bool) {
	const whole, shortest = "dependency", "dep" // --de might be --deadline
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

// JoinDependencies puts conditions of --dependency together, all of which must hold. Those of which one is enough ("?") cannot be joined
// with others: sbatch takes one separator, and Slurm 22.05 reads a list with both as if each were a "?".
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
				return "", fmt.Errorf("%s and the other conditions cannot all be asked of Slurm: it takes either "+
					"\",\" or \"?\" between them",
					clip(condition))
			}
		}
	}
	return strings.Join(all, ","), nil
}
