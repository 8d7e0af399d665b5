package slurm_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"ddpbatch/slurm"
)

func TestParseArray(t *testing.T) {
	for text, want := range map[string]slurm.Array{
		"0-3%2":      {Indices: []int{0, 1, 2, 3}, Limit: 2},
		"3-7:2%1":    {Indices: []int{3, 5, 7}, Limit: 1},
		"7":          {Indices: []int{7}},
		"9,1,4-5":    {Indices: []int{1, 4, 5, 9}},
		"1-3,2-4":    {Indices: []int{1, 2, 3, 4}},
		"0-1000:500": {Indices: []int{0, 500, 1000}},
	} {
		got, err := slurm.ParseArray(text)
		if err != nil || !slices.Equal(got.Indices, want.Indices) || got.Limit != want.Limit {
			t.Errorf("%s: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, bad := range []string{"", "a", "1-", "-1", "3-1", "1-4:0", "1:2", "0-3%0", "0-3%", "0-1001", "1,,2",
		"1 2", "+1", "99999999999"} {
		if got, err := slurm.ParseArray(bad); err == nil {
			t.Errorf("%q is an array: %v", bad, got)
		}
	}
}

func FuzzParseArray(f *testing.F) {
	f.Add("0-3%2")
	f.Add("1,5-9:2")
	f.Fuzz(func(t *testing.T, text string) {
		a, err := slurm.ParseArray(text)
		if err != nil {
			return
		}
		if len(a.Indices) == 0 || !slices.IsSorted(a.Indices) || a.Indices[0] < 0 || a.Limit < 0 {
			t.Errorf("%q: %+v", text, a)
		}
	})
}

// Parsing an array's text returns the same array.
func TestArraysSurviveText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := slurm.Array{
			Indices: rapid.SliceOfNDistinct(rapid.IntRange(0, 1000), 1, 60, rapid.ID[int]).Draw(t, "indices"),
			Limit:   rapid.IntRange(0, 9).Draw(t, "limit"),
		}
		slices.Sort(want.Indices)
		got, err := slurm.ParseArray(want.String())
		if err != nil || !slices.Equal(got.Indices, want.Indices) || got.Limit != want.Limit {
			t.Fatalf("%v is %q, which is %v, %v", want, want, got, err)
		}
	})
	if text := (slurm.Array{Indices: []int{0, 1, 2, 4, 6, 7}, Limit: 2}).String(); text != "0-2,4,6-7%2" {
		t.Error(text)
	}
}
