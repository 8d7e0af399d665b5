package inspect

import "testing"

func TestParseStep(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "12": 12, "step-12": 12, "step-000000000012": 12, "step-000000000012.3-0123abcd": 12, "step-000000000012.broken": 12,
		"": -1, "-1": -1, "x": -1, "1.5": -1, "step-": -1, "step--1": -1, "99999999999999999999": -1,
	} {
		got, err := ParseStep(text)
		if err != nil {
			got = -1
		}
		if got != want {
			t.Errorf("%q is step %d, want %d", text, got, want)
		}
	}
}
