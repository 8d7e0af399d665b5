package output

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestParseMap(t *testing.T) {
	for text, want := range map[string]Map{
		"0":            {},
		"3":            {All: Both},
		"1":            {All: Out},
		"0:3":          {Ranks: map[int]Mode{0: Both}},
		"0:3,1:0,2:1":  {Ranks: map[int]Mode{0: Both, 1: None, 2: Out}},
		"12:2,127:3":   {Ranks: map[int]Mode{12: Err, 127: Both}}, // torchrun accepts only one digit
		"0:1,0:2":      {Ranks: map[int]Mode{0: Err}},
		"1048575:1":    {Ranks: map[int]Mode{1048575: Out}},
		"007:1":        {Ranks: map[int]Mode{7: Out}},
		"0:0,1:0,12:0": {Ranks: map[int]Mode{0: None, 1: None, 12: None}},
	} {
		got, err := ParseMap(text)
		if err != nil || got.All != want.All || !maps.Equal(got.Ranks, want.Ranks) {
			t.Errorf("ParseMap(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
	m, err := ParseMap("1:3")
	must(t, err)
	if m.Of(1) != Both || m.Of(0) != None {
		t.Errorf("ranks 0 and 1 have the modes %v and %v", m.Of(0), m.Of(1))
	}
	for _, text := range []string{"", "4", "33", "-1", " 1", "1 ", "0:4", "0:", ":1", ":", "0:1,", ",0:1", "0:1,2", "3,0:1",
		"-1:1", "+1:1", "a:1", "0:1;1:2", "0:1:2", "1048576:1", "99999999999999999999:1", "٣:1", "0x1:1"} {
		if got, err := ParseMap(text); err == nil {
			t.Errorf("ParseMap(%q) = %v", text, got)
		} else if !strings.Contains(err.Error(), "rank") && !strings.Contains(err.Error(), "RANK") &&
			!strings.Contains(err.Error(), "mode") {
			t.Errorf("ParseMap(%q): %v does not help", text, err)
		}
	}
}

func TestParseRanks(t *testing.T) {
	for text, want := range map[string][]int{
		"":           nil,
		"0":          {0},
		"3,0,3":      {0, 3},
		"0,3,8-11":   {0, 3, 8, 9, 10, 11},
		"2-2":        {2},
		"1, 2-3":     {1, 2, 3},
		"1048575":    {1048575},
		"10-12,0-10": {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12},
	} {
		if got, err := ParseRanks(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("ParseRanks(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
	if got, err := ParseRanks("0-1048575"); err != nil || len(got) != 1<<20 {
		t.Errorf("all ranks there can be: %d, %v", len(got), err)
	}
	for _, text := range []string{",", "1,", "-1", "3-", "3-1", "-", "1--2", "1-2-3", "a", "1.5", "+1", "1048576", "0-1048576",
		"0-9999999999", "0-1048575,0-1048575", " ", "1 2"} {
		if got, err := ParseRanks(text); err == nil {
			t.Errorf("ParseRanks(%q) has %d ranks", text, len(got))
		}
	}
}

func TestPrefix(t *testing.T) {
	w := Worker{Host: "n1", Rank: 11, LocalRank: 3, Role: "trainer"}
	for prefix, want := range map[string]string{
		"":                              "",
		DefaultPrefix:                   "[n1 11] ",
		"[${role_name}${local_rank}]:":  "[trainer3]:", // torchrun's own
		"$rank/$local_rank $$${rank}":   "11/3 $11",
		"plain":                         "plain",
		"$rank.":                        "11.",
		"\x1b[3${local_rank}m${rank}: ": "\x1b[33m11: ", // a color for each worker
	} {
		if err := ParsePrefix(prefix); err != nil {
			t.Errorf("%q: %v", prefix, err)
		}
		if got := Label(prefix, w); got != want {
			t.Errorf("%q is %q, want %q", prefix, got, want)
		}
	}
	if got := Label("${host}${role_name}", Worker{Host: "n\n\x1b1"}); got != "n  1default" {
		t.Errorf("a host that is not a name gives %q", got)
	}
	for prefix, says := range map[string]string{
		"${hostname}":            "${host}, ${rank}, ${local_rank} or ${role_name}",
		"$world":                 "${world}",
		"$rank0":                 "${rank0}",
		"${Rank}":                "${Rank}",
		"${}":                    "${}",
		"${rank":                 "no }",
		"5 $":                    "$$",
		"$1":                     "$$",
		"two\nlines":             "line",
		"two\rlines":             "line",
		strings.Repeat("x", 257): "256",
	} {
		if err := ParsePrefix(prefix); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q in it", prefix, err, says)
		}
	}
}

func TestParseFilters(t *testing.T) {
	for text, want := range map[string][]string{
		"":              nil,
		"apple":         {"apple"},
		"apple,orange":  {"apple", "orange"},
		"a,,b":          {"a,b"},
		"a,,,b":         {"a,", "b"},
		",,":            {","},
		",a, ,":         {"a", " "},
		"step= 1,ü":     {"step= 1", "ü"},
		"a,,,,b,,,,,,c": {"a,,b,,,c"},
	} {
		if got := ParseFilters(text); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"0:3,1:0", "0,3,8-11", "[${host} ${rank}] $$", "a,,b"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if m, err := ParseMap(text); err == nil {
			for rank, mode := range m.Ranks {
				if rank < 0 || rank > maxRank || mode > Both {
					t.Errorf("%q gives rank %d mode %d", text, rank, mode)
				}
			}
		}
		if ranks, err := ParseRanks(text); err == nil && !slices.IsSorted(ranks) {
			t.Errorf("%q: not in order", text)
		}
		if err := ParsePrefix(text); err == nil && strings.Contains(Label(text, Worker{Host: "n1"}), "\n") {
			t.Errorf("%q leaves its line", text)
		}
		ParseFilters(text)
	})
}
