package rundir

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"testing"
)

func FuzzSpec(f *testing.F) {
	f.Add([]byte(`{"schema":1,"run":"x-20261121-120000-beef","name":"x","kind":"slurm","nodes":2,"job":{"a":[1]}}`))
	f.Add([]byte(`{"schema":1,"name":"../x"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := parseSpec(data)
		if err != nil {
			return
		}
		if filepath.Base(s.Name) != s.Name || s.Name == ".." || s.Nodes < 0 {
			t.Fatalf("spec was taken: %+v", s)
		}
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parseSpec(text); err != nil {
			t.Fatalf("what was read cannot be read again: %v", err)
		}
	})
}

func FuzzLedger(f *testing.F) {
	f.Add([]byte(`{"event":"submit"}` + "\n" + `{"event":"end","attempt":1}` + "\n"))
	f.Add([]byte(`{"event":"submit"}` + "\n" + `{"event":"en`))
	f.Fuzz(func(t *testing.T, data []byte) {
		events := parseLedger(data)
		if len(events) > bytes.Count(data, []byte{'\n'})+1 {
			t.Fatalf("%d events out of %q", len(events), data)
		}
		// One line more gives one event more, whatever stands before.
		more := append(bytes.Clone(data), "\n{\"event\":\"end\"}\n"...)
		if got := parseLedger(more); len(got) != len(events)+1 || got[len(got)-1].Event != "end" {
			t.Fatalf("%d events, then %d", len(events), len(got))
		}
	})
}

func FuzzMetrics(f *testing.F) {
	f.Add([]byte(`{"step":1}` + "\n" + `{"step":`))
	f.Add([]byte("\n\n{\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		before, ok := lastMetrics(data)
		// A cut line changes nothing.
		if after, still := lastMetrics(append(bytes.Clone(data), "\n{\"step\":"...)); still != ok || after != before {
			t.Fatalf("%+v, %v became %+v, %v", before, ok, after, still)
		}
	})
}
