package slurm

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// For each long option that the installed sbatch(1) documents, the table either has the option or has advice on why it is refused.
func TestOptionTableCoversManual(t *testing.T) {
	page, err := exec.Command("man", "-P", "cat", "sbatch").Output()
	if err != nil {
		t.Skipf("no manual page of sbatch here: %v", err)
	}
	// "       -A, --account=<account>" or "       --bb=<spec>", at the margin of the list of options;
	// man marks bold letters by overstriking
	text := regexp.MustCompile(`.\x08`).ReplaceAllString(string(page), "")
	found := 0
	for _, m := range regexp.MustCompile(`(?m)^ {7}(?:-[A-Za-z], )?--([a-z][a-z-]*)`).FindAllStringSubmatch(text, -1) {
		found++
		_, taken := optionTable[m[1]]
		if advice := reservedOptions[m[1]]; !taken && advice == "" {
			t.Errorf("--%s is in the manual, and not known", m[1])
		}
	}
	if found < 90 {
		t.Fatalf("only %d options found in the manual", found)
	}
}

func TestOptionTableIsConsistent(t *testing.T) {
	keys := OptionKeys()
	if !slices.IsSorted(keys) || len(slices.Compact(slices.Clone(keys))) != len(optionTable) {
		t.Errorf("keys are not sorted, or not all there: %q", keys)
	}
	for _, key := range keys {
		if strings.Contains(key, "-") {
			t.Errorf("key %s is not in job.toml's spelling", key)
		}
		if OptionTakes(key) == "" {
			t.Errorf("key %s has no type", key)
		}
	}
	for name := range reservedOptions {
		if _, taken := optionTable[name]; taken {
			t.Errorf("%s is both taken and refused", name)
		}
	}
	for _, name := range shortOptions {
		if CheckExtra("--"+name) == nil {
			t.Errorf("the short spelling of %s has no reason to be refused", name)
		}
	}
}
