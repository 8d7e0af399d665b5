package rundir

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestSetJobIDLinksTheRun(t *testing.T) {
	parent := t.TempDir()
	d := create1(t, parent, "x")
	if id, err := d.JobID(); id != "" || err != nil {
		t.Errorf("before: %q, %v", id, err)
	}
	for _, id := range []string{"41", "42", "42"} {
		must(t, d.SetJobID(id))
		if got, err := d.JobID(); got != id || err != nil {
			t.Errorf("job id is %q, %v; want %s", got, err, id)
		}
		if to, err := os.Readlink(filepath.Join(parent, ".job-x-"+id)); to != filepath.Base(d.Path()) || err != nil {
			t.Errorf("link points at %q, %v", to, err)
		}
	}
	if got, want := d.SlurmLogPath("42"), filepath.Join(d.Path(), "slurm-42.log"); got != want {
		t.Errorf("log is %s, want %s", got, want)
	}
	if got := d.SlurmLogPath("../42"); filepath.Dir(got) != d.Path() {
		t.Errorf("log is %s", got)
	}
	for _, id := range []string{"", "x", "1;la b", "1/2", "-1", "1\n", "١", strings.Repeat("1", 21)} {
		if err := d.SetJobID(id); err == nil {
			t.Errorf("job id %q was taken", id)
		}
	}
}

func TestSetJobIDReplacesOwnLinksOnly(t *testing.T) {
	for name, tc := range map[string]struct {
		put  func(t *testing.T, link string)
		want bool // it is replaced
	}{
		"link to another run": {func(t *testing.T, link string) { must(t, os.Symlink("x-20250101-000000-0000beef", link)) }, true},
		"foreign link":        {func(t *testing.T, link string) { must(t, os.Symlink("/etc", link)) }, false},
		"link out of parent":  {func(t *testing.T, link string) { must(t, os.Symlink("../x-20250101-000000-0000beef", link)) }, false},
		"file":                {func(t *testing.T, link string) { must(t, os.WriteFile(link, []byte("mine"), 0o600)) }, false},
		"directory":           {func(t *testing.T, link string) { must(t, os.Mkdir(link, 0o700)) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			parent := t.TempDir()
			d := create1(t, parent, "x")
			link := filepath.Join(parent, ".job-x-7")
			tc.put(t, link)
			before, err := os.Lstat(link)
			must(t, err)
			err = d.SetJobID("7")
			if (err == nil) != tc.want || !tc.want && !errors.Is(err, ErrLink) {
				t.Errorf("error is %v", err)
			}
			if id, _ := d.JobID(); id != "7" {
				t.Errorf("job id is %q", id)
			}
			if after, err := os.Lstat(link); !tc.want && (err != nil || !os.SameFile(before, after)) {
				t.Errorf("%s is gone: %v", name, err)
			}
			if to, _ := os.Readlink(link); tc.want && to != filepath.Base(d.Path()) {
				t.Errorf("link points at %q", to)
			}
			if got := listing(t, parent); len(got) != 2 {
				t.Errorf("parent holds %v", got)
			}
		})
	}
}

func TestJobIDRefusesABrokenFile(t *testing.T) {
	d := create1(t, t.TempDir(), "x")
	for _, text := range []string{"", "nonsense\n", strings.Repeat("1", 100)} {
		must(t, os.WriteFile(filepath.Join(d.Path(), "jobid"), []byte(text), 0o600))
		if id, err := d.JobID(); err == nil {
			t.Errorf("%q gives job id %q", text, id)
		}
	}
}

func TestSubmissionsFollowTheLedger(t *testing.T) {
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
		"started again by Slurm": {[]Event{submitting, {Event: EventResume, Job: "5", Detail: "started again"}},
			nil, "", true, "", false},
		"an element, and begun":   {[]Event{resume("5"), submitting}, []Event{begin("5_3"), begin("9_3")}, "5", true, "9", false},
		"an element, long before": {[]Event{resume("5"), submitting}, []Event{long(begin("4_3"))}, "4 5", true, "", false},
		"an element, not open": {[]Event{resume("5"), {Event: EventResume, Element: &three, Detail: "job 9"}}, []Event{begin("9_3")},
			"5 9", false, "", false},
		"a number comes twice": {[]Event{resume("5"), resume("9"), resume("5")}, nil, "9 5", false, "", false},
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
			if jobs := strings.Join(got.Jobs, " "); jobs != test.jobs || (got.Open != nil) != test.open || got.Lost != test.lost ||
				got.Dropped != test.dropped {
				t.Errorf("jobs %q, open %v, lost %q, dropped %t; want %+v", jobs, got.Open, got.Lost, got.Dropped, test)
			}
		})
	}
}

func TestElementsAreFoundByTheirNames(t *testing.T) {
	d := create1(t, t.TempDir(), "x")
	one, err := d.Task(1)
	must(t, err)
	two, err := d.Task(2)
	must(t, err)
	must(t, one.SetName("lr=0.1"))
	must(t, one.SetName("lr=0.1")) // the same element, when it begins again
	must(t, two.SetName("lr=0.1")) // it shares the name
	found, err := Open(filepath.Join(d.Path(), "tasks", "lr=0.1"))
	if err != nil || found.Path() != one.Path() {
		t.Errorf("%+v, %v", found, err)
	}
	if elements, err := d.Elements(); err != nil || len(elements) != 2 {
		t.Errorf("%d elements, %v", len(elements), err)
	}
	for _, name := range []string{"../x", "a/b", "", ".", ".."} {
		if err := one.SetName(name); err == nil {
			t.Errorf("an element is called %q", name)
		}
	}
	if err := d.SetName("x"); err == nil {
		t.Error("a run has the name of an element")
	}
}
