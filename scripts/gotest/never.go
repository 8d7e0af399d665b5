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

// neverPrinted matches output of failures that are never chance: a data race, a leak, wrong bits, a port, a lock or an intruder, and what
// ends a whole test program. A test that draws its own seed is another test when it runs again, so that a second run proves nothing.
var neverPrinted = regexp.MustCompile("(?im)" + strings.Join([]string{
	`DATA RACE|race detected|concurrent map`,
	`\b(?:exit|status|code|ended with|exited with)\W{0,3}66\b`, // a child's end after a race; only a log may have it
	`goleak|unexpected goroutines|\bleak|lives on|the end of all processes|no process of|\bdescriptors\b|descriptor was closed`,
	`different bits|bits differ|other (?:bits|bytes)|something else|differs from|never stopped|nobody stopped|result right: false`,
	`\bseed \d|\bdeterministic:? (?:true|false)`,
	`address already in use|EADDRINUSE|deadlock`,
	`^panic: |^fatal error: |test timed out`,
}, "|"))

// neverNamed matches whole words of a test's CamelCase name, so that Report does not count as Port; the article A may precede one. The
// names of security tests are also in docs/security.md.
var neverNamed = regexp.MustCompile(`(?:^|[^A-Z]|[a-z0-9]A)(?:Race|Leak|Leaks|Bit|Bits|Port|Ports|Lock|Locks|Lease|Held|Secret|Secrets|` +
	`Stranger|Strangers|Owner|Owners|Forged|Relay|Attacker|Security|Auth|User|Users|Taken|Trusts|Planted|Swapped|Ticket|` +
	`Encrypted|Hostile|Impostor|Reflection)(?:[A-Z0-9_/]|$)`)

// neverIn matches packages, and tests of a package by how their names begin: a resumed run of the trainer must have the same bits as one
// that was never stopped.
var neverIn = regexp.MustCompile(`/internal/(?:auth|secure)(?: |$)|/trainer TestResume`)

// again returns which tests of a failed run may be run again: the innermost that failed, unless one of them is a security test. If none
// may, why is the reason.
func (o outcome) again(security []string) (tests []test, why string) {
	for _, t := range o.failed {
		said := o.said[t]
		if m := neverPrinted.FindString(said); m != "" {
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

// isOf reports whether t is one of names, or a subtest of one.
func (t test) isOf(names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return t.name == name || strings.HasPrefix(t.name, name+"/") })
}

// securityTests returns the tests that docs/security.md names, of the module in which gotest runs.
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
