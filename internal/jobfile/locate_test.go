package jobfile

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
)

// where returns all keys below a position as "a.b 3:1".
func where(src string, p *position, key toml.Key) []string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(p.keys)) {
		sub := below(key, name)
		line, column := lineColumn(src, p.keys[name].offset)
		lines = append(lines, fmt.Sprintf("%s %d:%d", sub, line, column))
		lines = append(lines, where(src, p.keys[name], sub)...)
	}
	for i, item := range p.items {
		lines = append(lines, where(src, item, append(slices.Clip(key[:len(key)-1]), fmt.Sprintf("%s%d", key[len(key)-1], i)))...)
	}
	return lines
}

func TestLocateFindsEveryKey(t *testing.T) {
	for _, test := range []struct {
		name, src string
		want      []string
	}{
		{"empty", "", nil},
		{"only a comment", "# a = 1", nil},
		{"bare keys", "a = 1\n  b=2\n\tc-3_ = 3", []string{"a 1:1", "b 2:3", "c-3_ 3:2"}},
		{"windows line ends", "a = 1\r\nb = 2\r\n", []string{"a 1:1", "b 2:1"}},
		{"comments", "# x = 1\na = 1 # b = 2\nc = \"#\" # d\ne = 3", []string{"a 2:1", "c 3:1", "e 4:1"}},
		{"tables", "[a]\nx = 1\n[ b . c ]\ny = 2", []string{"a 1:2", "a.x 2:1", "b 3:3", "b.c 3:7", "b.c.y 4:1"}},
		{"a table that follows its part", "[a.b]\nx=1\n[a]\ny=2", []string{"a 1:2", "a.b 1:4", "a.b.x 2:1", "a.y 4:1"}},
		{"dotted keys", "a . b.c = 1\na.d = 2", []string{"a 1:1", "a.b 1:5", "a.b.c 1:7", "a.d 2:3"}},
		{"quoted keys", "\"a.b\" = 1\n'c\\' = 2\n\"\\u00e9\" = 3\nd.\" \" = 4",
			[]string{`"a.b" 1:1`, `"c\\" 2:1`, `d 4:1`, `d." " 4:3`, `"é" 3:1`}},
		{"columns count characters", `v = { "ü" = "ü", b = 1 }`, []string{"v 1:1", "v.b 1:18", `v."ü" 1:7`}},
		{"inline tables", "a = { b = 1, c.d = { e = 2 } }\nf = {}\ng = 1",
			[]string{"a 1:1", "a.b 1:7", "a.c 1:14", "a.c.d 1:16", "a.c.d.e 1:22", "f 2:1", "g 3:1"}},
		{"an inline table on several lines", "a = {\n  b = 1, # }\n  c = 2,\n}\nd = 3",
			[]string{"a 1:1", "a.b 2:3", "a.c 3:3", "d 5:1"}},
		{"lists", "a = [1, [2, 3], \"]\", '#', # ]\n  { x = 1 },\n]\nb = 2", []string{"a 1:1", "a0.x 2:5", "b 4:1"}},
		{"lists of tables", "[[a]]\nx = 1\n[[a]]\nx = 2\ny = 3\n[b]", []string{"a 1:3", "a0.x 2:1", "a1.x 4:1", "a1.y 5:1", "b 6:2"}},
		{"a list of tables in a table", "[c]\n[[c.a]]\n[[c.a]]\nx = 2\n", []string{"c 1:2", "c.a 2:5", "c.a1.x 4:1"}},
		{"strings", `a = "\"b = 1" ` + "\n" + `c = 'd = "' ` + "\n" + `e = ""` + "\nf = ''\ng = 1",
			[]string{"a 1:1", "c 2:1", "e 3:1", "f 4:1", "g 5:1"}},
		{"strings on several lines", "a = \"\"\"\nx = 1\n\\\"\"\" y = 2\n\"\"\"\nb = '''\n[c]\n\\'''\nd = 1",
			[]string{"a 1:1", "b 5:1", "d 8:1"}},
		{"quotes at a string's end", "a = \"\"\"\"\"\"\nb = \"\"\"x\"\"\"\"\"\nc = '''x''''\nd = 1",
			[]string{"a 1:1", "b 2:1", "c 3:1", "d 4:1"}},
		{"dates and times", "a = 1979-05-27 07:32:00Z\nb = 07:32:00\nc = [07:32:00, 1979-05-27]\nd = 1",
			[]string{"a 1:1", "b 2:1", "c 3:1", "d 4:1"}},
		{"what is no TOML ends it", "a = 1\nb 2\nc = 3", []string{"a 1:1", "b 2:1"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			root, deep := locate(test.src)
			if got := where(test.src, root, nil); !slices.Equal(got, test.want) || deep >= 0 {
				t.Errorf("got %q, deep %d, want %q", got, deep, test.want)
			}
		})
	}
}

func TestLocateStopsWhereNestedTooDeep(t *testing.T) {
	lists := func(n int) string { return "a = " + strings.Repeat("[", n) + strings.Repeat("]", n) }
	dotted := func(n int) string { return strings.Repeat("a.", n-1) + "a = 1" }
	tables := func(n int) string { return strings.Repeat("a={", n) + strings.Repeat("}", n) }
	for _, test := range []struct {
		name, src string
		deep      int
	}{
		{"lists", lists(maxDepth - 1), -1},
		{"lists, one more", lists(maxDepth), 4 + maxDepth - 1},
		{"dotted", dotted(maxDepth), -1},
		{"dotted, one more", dotted(maxDepth + 1), 2*maxDepth + 1},
		{"header, one more", "[" + strings.Repeat("a.", maxDepth) + "a]", 2*maxDepth + 2},
		{"inline tables", tables(maxDepth - 1), -1},
		{"inline tables, one more", tables(maxDepth), 3*maxDepth - 1},
		{"both", "[a.b.c]\nd.e = " + lists(maxDepth - 4)[4:], 14 + maxDepth - 5},
		{"a list that never ends", "a = " + strings.Repeat("[", 100_000), 4 + maxDepth - 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, deep := locate(test.src); deep != test.deep {
				t.Errorf("deep at %d, want %d", deep, test.deep)
			}
		})
	}
}

// FuzzLocate compares the locator with the TOML library: in a valid document, the locator has found every key that the library finds
// outside lists, where the source spells that key.
func FuzzLocate(f *testing.F) {
	for _, seed := range []string{
		"a = 1\n[b]\nc.d = { e = [1, {f = 2}], g = '''\n'''}", "\"\\u00e9\" = \"\"\"\\\"\"\"\"\"\"\n", "[[a]]\nb = 1\n[[a.c]]\n",
		"a={\nb=1,#\n}", "'' = 1\n\"\\\"\" = 2", "a = 1979-05-27 07:32:00 # x\nb = -inf", "[a . 'b']\r\nc = \"\\\\\"",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, src string) {
		if len(src) > 1000 {
			return // spelled is slow
		}
		src = strings.TrimPrefix(src, "\ufeff")
		root, deep := locate(src)
		if deep >= 0 {
			return // the library may be very slow
		}
		values := make(map[string]any)
		meta, err := toml.Decode(src, &values)
		if err != nil {
			return
		}
		for _, key := range meta.Keys() {
			checkPosition(t, src, key, values, root)
		}
	})
}

func checkPosition(t *testing.T, src string, key toml.Key, values map[string]any, p *position) {
	t.Helper()
	for i, name := range key {
		if p = p.keys[name]; p == nil {
			t.Fatalf("no position for %s of %s in %q", key[:i+1], key, src)
		}
		if got := spelled(src[p.offset:]); got != name {
			t.Fatalf("the position of %s in %q has %q", key[:i+1], src, got)
		}
		table, ok := values[name].(map[string]any)
		if !ok {
			return
		}
		values = table
	}
}

// spelled reads the key at the start of src in a different way from the scanner: it takes the longest beginning that the library reads as a
// key of one part.
func spelled(src string) string {
	name := ""
	for n := 1; n <= len(src) && src[n-1] != '\n'; n++ {
		var values map[string]any
		if _, err := toml.Decode(src[:n]+" = 1", &values); err != nil || len(values) != 1 {
			continue
		}
		for k, v := range values {
			if v == int64(1) {
				name = k
			}
		}
		if src[0] == '"' || src[0] == '\'' {
			break
		}
	}
	return name
}
