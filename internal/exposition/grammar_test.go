package exposition

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// parsed is a sample as a reader gets it.
type parsed struct {
	name   string
	labels map[string]string
	value  float64
}

// key returns the sample's name with its labels, without those of the run.
func (p parsed) key() string {
	key := p.name
	for _, name := range []string{"phase", "cause"} {
		if value, ok := p.labels[name]; ok {
			key += "/" + value
		}
	}
	return key
}

var (
	metricName = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*`)
	labelName  = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*`)
	realNumber = regexp.MustCompile(`^[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?$`)
)

// parse reads the format that both specifications allow, without timestamps, which node_exporter refuses. Each family is in one piece, with
// its HELP and its TYPE before its samples. No other comments and no repeated series are allowed, and a sample of a counter ends in _total.
// In OpenMetrics the name of a counter's family does not end in _total, and # EOF is the last line.
func parse(text string, as format) (samples []parsed, err error) {
	if !utf8.ValidString(text) {
		return nil, fmt.Errorf("not UTF-8")
	}
	lines := strings.Split(text, "\n")
	if lines[len(lines)-1] != "" {
		return nil, fmt.Errorf("the last line has no end")
	}
	lines = lines[:len(lines)-1]
	if as == openMetrics {
		if len(lines) == 0 || lines[len(lines)-1] != "# EOF" {
			return nil, fmt.Errorf("no # EOF")
		}
		lines = lines[:len(lines)-1]
	}
	family, kind, helped := "", "", ""
	families, series := map[string]bool{}, map[string]bool{}
	for i, line := range lines {
		fail := func(why string) ([]parsed, error) { return nil, fmt.Errorf("line %d, %q: %s", i+1, line, why) }
		words := strings.SplitN(line, " ", 4)
		if words[0] == "#" {
			if len(words) < 4 || metricName.FindString(words[2]) != words[2] {
				return fail("no descriptor")
			}
			switch words[1] {
			case "HELP":
				if families[words[2]] || strings.ContainsAny(words[3], `\"`) {
					return fail("a second HELP, or one that would have to be escaped")
				}
				families[words[2]], helped, family = true, words[2], ""
			case "TYPE":
				if helped != words[2] || family != "" || words[3] != "gauge" && words[3] != "counter" {
					return fail("a TYPE without HELP, a second one, or of no kind that is used")
				}
				family, kind = words[2], words[3]
			default:
				return fail("a comment")
			}
			continue
		}
		p, err := parseSample(line)
		if err != nil {
			return fail(err.Error())
		}
		want := family
		if kind == "counter" && as == openMetrics {
			want += "_total"
		}
		if family == "" || p.name != want || (kind == "counter") != strings.HasSuffix(p.name, "_total") {
			return fail("of another family")
		}
		var pairs []string
		for name, value := range p.labels {
			pairs = append(pairs, fmt.Sprintf("%s=%q", name, value))
		}
		slices.Sort(pairs)
		if id := p.name + strings.Join(pairs, ","); series[id] {
			return fail("a series that was there")
		} else {
			series[id] = true
		}
		samples = append(samples, p)
	}
	return samples, nil
}

// parseSample reads name{label="value",...} number.
func parseSample(line string) (p parsed, err error) {
	p = parsed{name: metricName.FindString(line), labels: map[string]string{}}
	rest, ok := strings.CutPrefix(line[len(p.name):], "{")
	if p.name == "" || !ok {
		return p, fmt.Errorf("no name, or no labels")
	}
	for {
		name := labelName.FindString(rest)
		rest, ok = strings.CutPrefix(rest[len(name):], `="`)
		if _, twice := p.labels[name]; name == "" || strings.HasPrefix(name, "__") || !ok || twice {
			return p, fmt.Errorf("no name of a label, a reserved one, or one that was there")
		}
		var value []byte
		for rest != "" && rest[0] != '"' {
			if rest[0] == '\\' {
				if len(rest) < 2 || !strings.Contains(`\"n`, rest[1:2]) {
					return p, fmt.Errorf("an escape that there is not")
				}
				value = append(value, map[byte]byte{'\\': '\\', '"': '"', 'n': '\n'}[rest[1]])
				rest = rest[2:]
				continue
			}
			value, rest = append(value, rest[0]), rest[1:]
		}
		p.labels[name] = string(value)
		if rest, ok = strings.CutPrefix(rest, `"`); !ok {
			return p, fmt.Errorf("a value without an end")
		}
		if after, more := strings.CutPrefix(rest, ","); more {
			rest = after
			continue
		}
		if rest, ok = strings.CutPrefix(rest, "} "); !ok || !realNumber.MatchString(rest) {
			return p, fmt.Errorf("no number after the labels")
		}
		p.value, err = strconv.ParseFloat(rest, 64)
		return p, err
	}
}

// values returns the samples of a text by key, and checks that each has the labels of the run.
func values(t *testing.T, text []byte, as format, of Labels) map[string]float64 {
	t.Helper()
	samples, err := parse(string(text), as)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	all := map[string]float64{}
	for _, p := range samples {
		if p.labels["job_name"] != of.Job || p.labels["job_id"] != of.ID || p.labels["run"] != of.Run {
			t.Errorf("%s is of %v, want %v", p.name, p.labels, of)
		}
		all[p.key()] = p.value
	}
	return all
}

// parse finds violations of the specifications. Without this test, parse could accept anything.
func TestGrammarRefuses(t *testing.T) {
	const good = "# HELP a Text.\n# TYPE a gauge\na{x=\"1\"} 2\n"
	if _, err := parse(good, prometheus); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		good[:len(good)-1], good + "\n", good + good, good + "a{x=\"1\"} 3\n", good + "a{x=\"2\"} NaN\n",
		good + "a{x=\"2\"} 1 1600000000\n",
		good + "a{x=\"\\t\"} 2\n", good + "a{x=\"2\"}  2\n", good + "b{x=\"2\"} 2\n", good + "a{x=\"2\",x=\"3\"} 2\n",
		good + "a{x=\"\xff\"} 2\n",
		good + "# EOF\n", "# TYPE a gauge\na{x=\"1\"} 2\n", strings.Replace(good, "gauge", "counter", 1), good + "a{x=\"2\",} 2\n",
		good + "a{1=\"2\"} 2\n", good + "a{x=\"2} 2\n",
	} {
		if _, err := parse(text, prometheus); err == nil {
			t.Errorf("this is taken:\n%s", text)
		}
	}
	for _, text := range []string{good, good + "# EOF", "# EOF\n" + good, good + "# EOF\n# EOF\n"} {
		if _, err := parse(text, openMetrics); err == nil {
			t.Errorf("this is taken as OpenMetrics:\n%s", text)
		}
	}
}
