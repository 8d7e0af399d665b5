package rendezvous

import (
	"context"
	"crypto/rand"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestParsePorts(t *testing.T) {
	for text, want := range map[string]PortRanges{
		"61000-65535":              {{61000, 65535}},
		"1024-1031":                {{1024, 1031}},
		"61000-61003, 62000-62100": {{61000, 61003}, {62000, 62100}},
		"2000,2002-2008":           {{2000, 2000}, {2002, 2008}},
	} {
		if got, err := ParsePorts(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"":                         "not a range of ports",
		"x":                        `"x" is not a range of ports from 1024 to 65535: write "61000-65535"`,
		"61000-":                   "not a range of ports",
		"-61000":                   "not a range of ports",
		"61000-65536":              "not a range of ports",
		"61000-65000-65535":        "not a range of ports",
		"61000-65535,":             "not a range of ports",
		"+61000-65535":             "not a range of ports",
		"0-0":                      "below 1024",
		"80-90":                    "below 1024",
		"65535-61000":              "ends before it begins",
		"61000-61006":              "fewer than 8 ports",
		"61000-61100,61100-61200":  "61000-61100 and 61100-61200 overlap",
		"61050,61000-61100":        "61050-61050 and 61000-61100 overlap",
		strings.Repeat("1024,", 9): "overlap",
		everySecond(65):            "more than 64 ranges",
	} {
		if got, err := ParsePorts(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v, want %q", text, got, err, want)
		}
	}
}

// everySecond is a text of n ranges.
func everySecond(n int) string {
	words := make([]string, n)
	for i := range words {
		words[i] = strconv.Itoa(2000 + 2*i)
	}
	return strings.Join(words, ",")
}

func TestPortsAreOfTheirRanges(t *testing.T) {
	ranges := PortRanges{{61000, 61002}, {2000, 2099}}
	list := ranges.Ports("job", 1<<20)
	if len(list) != ranges.Count() || len(list) != 103 {
		t.Fatalf("%d ports of %d", len(list), ranges.Count())
	}
	if first := slices.Sorted(slices.Values(list[:3])); !slices.Equal(first, []int{61000, 61001, 61002}) {
		t.Errorf("the first range has %v", first)
	}
	rest := slices.Sorted(slices.Values(list[3:]))
	for i, port := range rest {
		if port != 2000+i {
			t.Fatalf("the second range has %v", rest)
		}
	}
	if !slices.Equal(ranges.Ports("job", 8), list[:8]) || slices.Equal(ranges.Ports("other", 103), list) {
		t.Error("the seed does not decide the order alone")
	}
}

// TestAgentZeroListensWithinItsRanges checks that agent 0 listens only in its ranges, as a site's firewall requires, even with Exchange.
func TestAgentZeroListensWithinItsRanges(t *testing.T) {
	ranges := PortRanges{{61000, 65535}}
	c := Config{World: World{Count: 2}, Network: Network{Ranges: ranges, Ports: ranges.Ports(rand.Text(), 8)}}
	for _, byPMI := range []bool{false, true} {
		if byPMI {
			c.Exchange = func(context.Context, string) (string, error) { return "", nil }
		}
		l, err := c.listen(localNetwork{addrs: addrsOf("127.0.0.1")})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(c.Ports, l.port()) {
			t.Errorf("it listens at %d, which is none of %v", l.port(), c.Ports)
		}
		must(t, l.close())
	}
}

func FuzzParsePorts(f *testing.F) {
	f.Add("61000-65535")
	f.Add("1024-1030,2000")
	f.Fuzz(func(t *testing.T, text string) {
		ranges, err := ParsePorts(text)
		if (err == nil) != (len(ranges) > 0) {
			t.Fatalf("%v, %v", ranges, err)
		}
		if err != nil {
			return
		}
		list := ranges.Ports(text, 1<<20)
		if sorted := slices.Compact(slices.Sorted(slices.Values(list))); len(list) < leastPorts || len(sorted) != len(list) ||
			sorted[0] < firstPort || sorted[len(sorted)-1] > 65535 {
			t.Errorf("%d ports, of which %d differ, %d to %d", len(list), len(sorted), sorted[0], sorted[len(sorted)-1])
		}
	})
}
