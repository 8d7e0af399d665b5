package main

import (
	"fmt"
	"regexp"
	"strings"
)

// most is how many failed tests may be run once more in one run of .ci/run.
const most = 3

// What a failure shows of a data race, a leak, wrong bits, a port, a lock or an intruder is never chance, nor is what
// ends a whole test program. The names are whole words of a test's CamelCase name, so that Report is no Port.
var (
	neverSaid = regexp.MustCompile(`DATA RACE|race detected|concurrent map|goleak|unexpected goroutines|(?i)\bleak|` +
		`address already in use|EADDRINUSE|deadlock|different bits|bits differ|(?m)^panic: |(?m)^fatal error: |test timed out`)
	neverNamed = regexp.MustCompile(`(?:^|[^A-Z])(?:Race|Leak|Leaks|Bit|Bits|Port|Ports|Lock|Locks|Secret|Secrets|Stranger|` +
		`Strangers|Owner|Owners|Forged|Relay|Attacker|Security|Auth|User|Users|Taken|Trusts|Planted|Swapped|Ticket|` +
		`Encrypted|Hostile|Impostor|Reflection)(?:[A-Z0-9_/]|$)`)
	neverIn = regexp.MustCompile(`/internal/(?:auth|secure)$`)
)

// again says which tests of a failed run may be run once more: the innermost that failed. The reason is empty unless
// none may.
func (o outcome) again() (tests []test, why string) {
	for _, t := range o.failed {
		said := o.said[t]
		if m := neverSaid.FindString(said); m != "" {
			return nil, fmt.Sprintf("%s says %q", t, strings.TrimSpace(m))
		}
		if neverIn.MatchString(t.pkg) || neverNamed.MatchString(t.name) {
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

// failedBelow reports whether a test of the package t, or a subtest of the test t, failed.
func (o outcome) failedBelow(t test) bool {
	for _, f := range o.failed {
		if f.pkg == t.pkg && f.name != "" && (t.name == "" || strings.HasPrefix(f.name, t.name+"/")) {
			return true
		}
	}
	return false
}

// onlyOne returns the arguments of go test that run t alone, otherwise as before.
func onlyOne(args []string, t test) []string {
	var one []string
	for _, a := range args {
		name, _, _ := strings.Cut(strings.TrimLeft(a, "-"), "=")
		if strings.HasPrefix(a, "-") && name != "run" && name != "skip" && name != "count" {
			one = append(one, a)
		}
	}
	parts := strings.Split(t.name, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return append(one, "-run="+strings.Join(parts, "/"), "-count=1", t.pkg)
}
