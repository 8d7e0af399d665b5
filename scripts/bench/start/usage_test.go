package main

import (
	"strings"
	"testing"
	"time"
)

const (
	someStatus = "Name:\tddpbatch\nVmPeak:\t 1300000 kB\nVmHWM:\t   20000 kB\nVmRSS:\t   10000 kB\nRssAnon:\t    5000 kB\nThreads:\t9\n"
	someStat   = "123 (a) b) S 1 123 123 0 -1 4194560 900 0 0 0 31 12 5 6 20 0 9 0 4000 1300000000 2500 18446744073709551615"
)

func TestParseUsage(t *testing.T) {
	u, err := parseUsage(someStatus, someStat)
	if err != nil || u.resident != 10.24 || u.highest != 20.48 || u.own != 5.12 || u.cpu != 430*time.Millisecond {
		t.Errorf("%+v, %v", u, err)
	}
	for what, bad := range map[string][2]string{
		"no VmRSS":       {strings.ReplaceAll(someStatus, "VmRSS", "VmXXX"), someStat},
		"no number":      {strings.ReplaceAll(someStatus, "5000", "many"), someStat},
		"stat cut short": {someStatus, someStat[:30]},
		"no stat":        {someStatus, ""},
		"no times":       {someStatus, strings.Replace(someStat, " 31 ", " - ", 1)},
	} {
		if u, err := parseUsage(bad[0], bad[1]); err == nil {
			t.Errorf("%s: %+v", what, u)
		}
	}
}
