package main

import (
	"context"
	"ddpbatch/scripts/bench/internal/command"
	"ddpbatch/scripts/bench/internal/report"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The parts about agents measure what there is, on a small cluster, and leave no worker.
func TestAgents(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it starts jobs")
	}
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // of which it takes a few seconds
	defer cancel()
	o := options{parts: knownParts, Common: command.Common{Launches: 2}, meet: shape{3, 2}, idle: time.Second}
	figures, err := report.MeasureFigures(ctx, cluster{program, dir}.experiments(o), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if len(figures) != 9 {
		t.Errorf("%d figures", len(figures))
	}
	for _, f := range figures {
		if f.Unit != "%" && f.Samples.Median() <= 0 || f.Samples.Median() > 120_000 {
			t.Errorf("%s: %v %s", f.What, f.Samples, f.Unit)
		}
	}
	if jobs, err := filepath.Glob(filepath.Join(dir, "job-*")); len(jobs) > 0 || err != nil {
		t.Errorf("left: %q, %v", jobs, err)
	}
}

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
