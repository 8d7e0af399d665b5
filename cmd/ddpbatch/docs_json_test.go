package main

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/doctor"
	"ddpbatch/internal/goodput"
	"ddpbatch/internal/live"
	runreport "ddpbatch/internal/report"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/runview"
)

// jsonNames returns the JSON names of a struct's fields, including those of embedded structs.
func jsonNames(of reflect.Type) (names []string) {
	for i := range of.NumField() {
		field := of.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case field.Anonymous && name == "":
			names = append(names, jsonNames(field.Type)...)
		case name != "" && name != "-":
			names = append(names, name)
		}
	}
	return names
}

// The tables of docs/cli that are headed "field" have a row for each field of an object, and no other rows.
func TestJSONFieldsAreTheDocumentedOnes(t *testing.T) {
	breakdown, err := json.Marshal(goodput.Breakdown{Queued: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	var parts map[string]any
	if err := json.Unmarshal(breakdown, &parts); err != nil {
		t.Fatal(err)
	}
	var ofGoodput []string
	for name := range parts {
		ofGoodput = append(ofGoodput, name)
	}
	of := func(v any) []string { return jsonNames(reflect.TypeOf(v)) }
	ofElement := slices.DeleteFunc(of(runview.Result{}), func(name string) bool {
		return name != "name" && slices.Contains(of(runview.RunStatus{}), name) // an element has its own name
	})
	ofElement = slices.Compact(slices.Sorted(slices.Values(ofElement)))
	for _, table := range []struct {
		page, heading, head string
		names               []string
	}{
		{"status.md", "JSON", "field", of(runview.RunStatus{})},
		{"status.md", "JSON", "field of `goodput`", ofGoodput},
		{"status.md", "JSON", "field of `elements`", ofElement},
		{"account.md", "JSON", "field", of(goodput.Survey{})},
		{"account.md", "JSON", "field of `total`", of(goodput.Summary{})},
		{"stacks.md", "JSON", "field", of(live.Stacks{})},
		{"stacks.md", "JSON", "field of `groups`", of(live.StacksGroup{})},
		{"report.md", "JSON", "field", of(runreport.Data{})},
		{"report.md", "JSON", "field of `attempts`", of(runreport.Attempt{})},
		{"report.md", "JSON", "field of `metrics`", of(runreport.Metrics{})},
		{"report.md", "JSON", "field of `step_times`", of(runreport.StepTimes{})},
		{"ckpt.md", "JSON", "field", of(checkpoint.Info{})},
		{"doctor.md", "JSON", "field of `nodes`", of(doctor.Node{})},
		{"json.md", "Commands on a job", "field", of(jobReply{})},
		{"json.md", "Commands on a job", "field of `asked`", of(request{})},
		{"json.md", "Commands on a job", "field of `cancel`", of(cancelReply{})},
		{"json.md", "Commands on a job", "field of `rehearse`", of(rehearseReply{})},
		{"json.md", "verdict.json", "field", of(rundir.Verdict{})},
		{"json.md", "ledger.jsonl", "field", of(rundir.Event{})},
		{"json.md", "steps.jsonl", "field", of(rundir.StepTimes{})},
	} {
		var documented []string
		for _, row := range readPage(t, table.page) {
			if row.head != table.head || !slices.Contains(row.headings, table.heading) {
				continue
			}
			for _, span := range codeSpan.FindAllStringSubmatch(row.cells[0], -1) {
				documented = append(documented, span[1])
			}
		}
		slices.Sort(documented)
		if want := slices.Sorted(slices.Values(table.names)); !slices.Equal(documented, want) {
			t.Errorf("%s, %s: the table %q has\n%q, and the code has\n%q", table.page, table.heading, table.head, documented, want)
		}
	}
}
