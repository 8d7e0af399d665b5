package rundir

import (
	"strings"
	"testing"
	"time"
)

func TestSubmissions(t *testing.T) {
	three := 3
	submitting := Event{Event: EventSubmitting, Detail: EventResume, Time: noon}
	resume := func(id string) Event { return Event{Event: EventResume, Detail: "job " + id} }
	begin := func(id string) Event { return Event{Event: EventBegin, Job: id, Time: noon} }
	long := func(e Event) Event { e.Time = noon.Add(-time.Hour); return e }
	for name, test := range map[string]struct {
		history []Event
		element []Event // of element 3
		jobs    string
		open    bool
		lost    string
		dropped bool
	}{
		"none":                     {nil, nil, "", false, "", false},
		"recorded":                 {[]Event{submitting, resume("5"), begin("5")}, nil, "5", false, "", false},
		"recorded after it began":  {[]Event{submitting, begin("5"), resume("5")}, nil, "5", false, "", false},
		"not taken":                {[]Event{submitting, {Event: EventNotTaken}}, nil, "", false, "", false},
		"open":                     {[]Event{resume("5"), begin("5"), submitting}, nil, "5", true, "", false},
		"open, and begun":          {[]Event{resume("5"), submitting, begin("6")}, nil, "5", true, "6", false},
		"open, and the one before": {[]Event{resume("5"), submitting, begin("5")}, nil, "5", true, "", false},
		"by hand, then open":       {[]Event{resume("5"), begin("7"), resume("8"), submitting}, nil, "5 7 8", true, "", false},
		"dropped":                  {[]Event{submitting, submitting, resume("5")}, nil, "5", false, "", true},
		"begun, and again":         {[]Event{submitting, begin("4"), submitting, resume("5")}, nil, "4 5", false, "", false},
		"started again by Slurm":   {[]Event{submitting, {Event: EventResume, Job: "5", Detail: "started again"}}, nil, "", true, "", false},
		"an element, and begun":    {[]Event{resume("5"), submitting}, []Event{begin("5_3"), begin("9_3")}, "5", true, "9", false},
		"an element, long before":  {[]Event{resume("5"), submitting}, []Event{long(begin("4_3"))}, "4 5", true, "", false},
		"an element, not open":     {[]Event{resume("5"), {Event: EventResume, Element: &three, Detail: "job 9"}}, []Event{begin("9_3")}, "5 9", false, "", false},
		"a number comes twice":     {[]Event{resume("5"), resume("9"), resume("5")}, nil, "9 5", false, "", false},
		"by the program of before": {[]Event{{Event: EventSubmit, Detail: "job 5"}, begin("5"), {Event: EventEnd}}, nil, "5", false, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			d := create1(t, t.TempDir(), "x")
			for _, e := range test.history {
				must(t, d.Append(e))
			}
			for _, e := range test.element {
				element, err := d.Task(3)
				must(t, err)
				must(t, element.Append(e))
			}
			got, err := d.Submissions()
			must(t, err)
			if jobs := strings.Join(got.Jobs, " "); jobs != test.jobs || (got.Open != nil) != test.open || got.Lost != test.lost || got.Dropped != test.dropped {
				t.Errorf("jobs %q, open %v, lost %q, dropped %t; want %+v", jobs, got.Open, got.Lost, got.Dropped, test)
			}
		})
	}
}
