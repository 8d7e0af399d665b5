package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"ddpbatch/internal/lint"
)

// What a failure shows of a data race, a leak, wrong bits, a port, a lock or an intruder is never chance, nor is what
// ends a whole test program. Another run of a test that draws its own seed is another test, so that it proves nothing.
var neverSaid = regexp.MustCompile("(?im)" + strings.Join([]string{
	`DATA RACE|race detected|concurrent map`,
	`\b(?:exit|status|code|ended with|exited with)\W{0,3}66\b`, // a child's end after a race; its words may be in a log alone
	`goleak|unexpected goroutines|\bleak|lives on|the end of all processes|no process of|\bdescriptors\b|descriptor was closed`,
	`different bits|bits differ|other (?:bits|bytes)|something else|differs from|never stopped|nobody stopped|result right: false`,
	`\bseed \d|\bdeterministic:? (?:true|false)`,
	`address already in use|EADDRINUSE|deadlock`,
	`^panic: |^fatal error: |test timed out`,
}, "|"))

// The names are whole words of a test's CamelCase name, so that Report is no Port; the article A may stand before one. Those of security
// are in docs/security.md, too.
var neverNamed = regexp.MustCompile(`(?:^|[^A-Z]|[a-z0-9]A)(?:Race|Leak|Leaks|Bit|Bits|Port|Ports|Lock|Locks|Lease|Held|Secret|Secrets|` +
	`Stranger|Strangers|Owner|Owners|Forged|Relay|Attacker|Security|Auth|User|Users|Taken|Trusts|Planted|Swapped|Ticket|` +
	`Encrypted|Hostile|Impostor|Reflection)(?:[A-Z0-9_/]|$)`)

// Packages, and tests of them by how their names begin: a resumed run of the trainer has the bits of one that was never stopped.
var neverIn = regexp.MustCompile(`/internal/(?:auth|secure)(?: |$)|/trainer TestResume`)

// again says which tests of a failed run may be run once more: the innermost that failed, none of them of security. The reason is
// empty unless none may.
func (o outcome) again(security []string) (tests []test, why string) {
	for _, t := range o.failed {
		said := o.said[t]
		if m := neverSaid.FindString(said); m != "" {
			return nil, fmt.Sprintf("%s says %q", t, strings.TrimSpace(m))
		}
		if neverIn.MatchString(t.String()) || neverNamed.MatchString(t.name) || t.isOf(security) {
			return nil, fmt.Sprintf("%s is about what never fails by chance", t)
		}
		if t.name != "" && !o.failedBelow(t) {
			tests = append(tests, t)
		}
	}
	for _, t := range o.failed {
		if t.name == "" && !o.failedBelow(t) {
			return nil, fmt.Sprintf("%s failed, and none of its tests", t)
		}
	}
	if len(tests) == 0 {
		return nil, "go test failed, and no test of it"
	}
	return tests, ""
}

// isOf reports whether t is one of names, or below one.
func (t test) isOf(names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return t.name == name || strings.HasPrefix(t.name, name+"/") })
}

// securityTests are the tests that hold what docs/security.md says, of the module in which gotest runs.
func securityTests(ctx context.Context) ([]string, error) {
	file, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return nil, fmt.Errorf("go env GOMOD: %w", err)
	}
	return lint.SecurityTests(filepath.Dir(strings.TrimSpace(string(file))))
}

// failedBelow reports whether a test of the package t, or a subtest of the test t, failed.
func (o outcome) failedBelow(t test) bool {
	for _, f := range o.failed {
		if f.pkg == t.pkg && f.name != "" && (t.name == "" || strings.HasPrefix(f.name, t.name+"/")) {
			return true
		}
	}
	return false
}
