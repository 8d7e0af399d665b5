package snapshot

import (
	"path"
	"strings"
	"testing"
)

func TestPatterns(t *testing.T) {
	for _, test := range []struct {
		pattern, name string
		isDir, want   bool
	}{
		{"*.yaml", "a.yaml", false, true}, {"*.yaml", "x/y/a.yaml", false, true}, {"*.yaml", "a.yml", false, false},
		{"*.yaml", "a.yaml/x", false, true},
		{"/*.yaml", "a.yaml", false, true}, {"/*.yaml", "x/a.yaml", false, false},
		{"conf/*.yaml", "conf/a.yaml", false, true}, {"conf/*.yaml", "x/conf/a.yaml", false, false},
		{"conf/*.yaml", "conf/x/a.yaml", false, false},
		{"conf/**/*.yaml", "conf/a.yaml", false, true}, {"conf/**/*.yaml", "conf/x/y/a.yaml", false, true},
		{"conf/**", "conf/x/y", false, true},
		{"**/b", "b", false, true}, {"**/b", "a/b", false, true}, {"a/**/b", "a/c", false, false}, {"**", "x", false, true},
		{"data", "data", false, true}, {"data", "x/data/y", false, true}, {"data", "database", false, false},
		{"data/", "data", false, false}, {"data/", "data", true, true}, {"data/", "x/data/y", false, true},
		{"/data/", "x/data/y", false, false},
		{"a?c", "abc", false, true}, {"[ab]*", "b1", false, true}, {`\*`, "*", false, true}, {`\*`, "a", false, false},
		{"a/b/", "a/b/c", false, true}, {"a/b/", "a/b", false, false},
	} {
		list, err := parsePatterns([]string{test.pattern})
		if err != nil || matchAny(list, test.name, test.isDir) != test.want {
			t.Errorf("%q of %q (folder: %v): not %v, %v", test.pattern, test.name, test.isDir, test.want, err)
		}
	}
	for _, bad := range []string{"", "/", "//", "a//b", "../x", "a/..", "./a", "[", "a/[b", `a\`, strings.Repeat("a", maxPattern+1)} {
		if _, err := parsePattern(bad); err == nil {
			t.Errorf("%q is a pattern", bad)
		}
	}
	for _, config := range []Config{{Snapshot: Git, Include: []string{"ok", "["}}, {Snapshot: Copy, Include: []string{"*"}},
		{Exclude: []string{".."}}} {
		if err := config.Validate(); err == nil || !strings.HasPrefix(err.Error(), "code.") {
			t.Errorf("%+v: %v", config, err)
		}
	}
}

func TestMayHold(t *testing.T) {
	for _, test := range []struct {
		pattern, folder string
		want            bool
	}{
		{"*.yaml", "any/where", true}, {"conf/*.yaml", "conf", true}, {"conf/*.yaml", "data", false}, {"conf/*.yaml", "conf/x", false},
		{"conf/**/*.yaml", "conf/x/y", true}, {"conf/", "conf/x/y", true}, {"a/b/c", "a", true}, {"a/b/c", "a/c", false},
	} {
		list, err := parsePatterns([]string{test.pattern})
		if err != nil || mayHold(list, test.folder) != test.want {
			t.Errorf("%q in %q: not %v, %v", test.pattern, test.folder, test.want, err)
		}
	}
}

// FuzzPattern: an accepted pattern never fails to match. If it matches a folder, it matches everything in the folder. If mayHold is false
// for a folder, nothing in the folder matches. Without ** and slashes, a pattern matches as path.Match does on the last name.
func FuzzPattern(f *testing.F) {
	f.Add("*.yaml", "a/b.yaml")
	f.Add("conf/**/x/", "conf/a/x/y")
	f.Add("[a-z]?/**", "b1/c")
	f.Fuzz(func(t *testing.T, text, name string) {
		name = path.Clean(name)
		if strings.HasPrefix(name, "/") || strings.HasPrefix(name, "..") || name == "." {
			return
		}
		p, err := parsePattern(text)
		if err != nil {
			return
		}
		list := []pattern{p}
		whole := matchAny(list, name, false)
		if parent := path.Dir(name); parent != "." {
			if matchAny(list, parent, true) && !whole {
				t.Errorf("%q is about the folder %q, and not about %q in it", text, parent, name)
			}
			if whole && !mayHold(list, parent) {
				t.Errorf("%q is about %q, and the folder may not hold it", text, name)
			}
		}
		if !strings.Contains(text, "/") && text != anyFolders {
			if last, err := path.Match(text, path.Base(name)); err != nil || last && !whole {
				t.Errorf("%q of %q: %v, %v", text, name, last, err)
			}
		}
	})
}
