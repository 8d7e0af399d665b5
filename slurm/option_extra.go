package slurm

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// readOptions are the options that ddpbatch reads as keys of [slurm], so that they must not
// hide among the extra words.
var readOptions = map[string]bool{"nodes": true, "array": true, "cpus-per-task": true}

// shortOptions are sbatch's one-letter spellings of what ddpbatch sets or reads.
var shortOptions = map[byte]string{
	'J': "job-name", 'D': "chdir", 'o': "output", 'e': "error", 'W': "wait", 'Q': "quiet", 'n': "ntasks",
	'h': "help", 'V': "version", 'N': "nodes", 'a': "array", 'c': "cpus-per-task",
	'M': "clusters",
}

// shortFlags are the one-letter options without a value: another letter may follow in the same word.
const shortFlags = "HOsv"

// CheckExtra checks one word that goes to sbatch as it is (slurm.extra in a job file): it
// must be an option, fit on one line, and not be one that ddpbatch sets or reads itself.
// Abbreviations of those, which sbatch would take too, are found out.
func CheckExtra(word string) error {
	if err := checkWord(word); err != nil {
		return fmt.Errorf("sbatch option %s: %w", clip(word), err)
	}
	name := extraName(word)
	if name == "" {
		return fmt.Errorf(`sbatch option %s: it must be one word that begins with a dash, such as "--switches=1"`, clip(word))
	}
	if readOptions[name] {
		return fmt.Errorf("sbatch option %s: write it as %s = ... in [slurm]", clip(word), optionKey(name))
	}
	if name == "clusters" || name == "cluster" { // a key of [slurm] that jobfile refuses
		const advice = "ddpbatch follows its jobs on one cluster only: set SLURM_CLUSTERS in the shell instead"
		return fmt.Errorf("sbatch option %s: %s", clip(word), advice)
	}
	if advice, reserved := reservedOptions[name]; reserved && name != "extra" {
		return fmt.Errorf("sbatch option %s: it does not belong here: %s", clip(word), advice)
	}
	if whole := abbreviated(name); whole != "" && strings.HasPrefix(word, "--") {
		return fmt.Errorf("sbatch option %s: sbatch may read it as --%s, which does not belong here; write options in full", clip(word), whole)
	}
	return nil
}

// extraName is the long name of what word sets, or its letter where ddpbatch has no use for
// the option; "" where word is no option.
func extraName(word string) string {
	if long, found := strings.CutPrefix(word, "--"); found {
		name, _, _ := strings.Cut(long, "=")
		return name
	}
	letters, found := strings.CutPrefix(word, "-")
	if !found || letters == "" {
		return ""
	}
	rest := strings.TrimLeft(letters, shortFlags)
	if rest == "" {
		return letters[:1]
	}
	if name := shortOptions[rest[0]]; name != "" {
		return name
	}
	return rest[:1]
}

// abbreviated returns the option among those that ddpbatch sets or reads that sbatch may take
// name for, since getopt_long(3) completes the beginning of a name; "" where there is none.
func abbreviated(name string) string {
	if _, known := optionTable[name]; known || name == "extra" {
		return ""
	}
	for _, whole := range slices.Sorted(maps.Keys(reservedOptions)) {
		if strings.HasPrefix(whole, name) {
			return whole
		}
	}
	for _, whole := range slices.Sorted(maps.Keys(readOptions)) {
		if strings.HasPrefix(whole, name) {
			return whole
		}
	}
	return ""
}
