package container

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestParseMount(t *testing.T) {
	for text, want := range map[string]Bind{
		"/data":            {Source: "/data", Target: "/data"},
		"/data:/in":        {Source: "/data", Target: "/in"},
		"/data/../x:/in/:": {},
		"/a/b/..:/in:ro":   {Source: "/a", Target: "/in", ReadOnly: true},
		"/a:/in:rw":        {Source: "/a", Target: "/in"},
		"/a:/in:z":         {},
		"a:/in":            {},
		"/a:in":            {},
		"/a:/":             {},
		"/a,b:/in":         {},
		`/a"b:/in`:         {},
		":/in":             {},
		"":                 {},
		"/a:/b:ro:ro":      {},
	} {
		got, err := ParseMount(text)
		if (err == nil) != (want != Bind{}) || err == nil && got != want {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
}

func FuzzParseMount(f *testing.F) {
	f.Add("/data:/data:ro")
	f.Add("//a/./b:/c/../d")
	f.Fuzz(func(t *testing.T, text string) {
		bind, err := ParseMount(text)
		if err != nil {
			return
		}
		again := bind.Source + ":" + bind.Target
		if bind.ReadOnly {
			again += ":ro"
		}
		if second, err := ParseMount(again); err != nil || second != bind {
			t.Errorf("%q is %+v, and %q is %+v, %v", text, bind, again, second, err)
		}
		if !filepath.IsAbs(bind.Source) || bind.Target == "/" || strings.ContainsAny(bind.Source+bind.Target, ",:\n") {
			t.Errorf("%q is %+v", text, bind)
		}
	})
}

// The innermost bind decides the path on the host. Binds of the run count as well as those of the job.
func TestHostPath(t *testing.T) {
	c := Config{Mounts: []string{"/lab/x:/data", "/fast:/data/in/deep", "/same", "/other:/proj/in"}}
	for path, want := range map[string]string{
		"/data":              "/lab/x",
		"/data/a":            "/lab/x/a",
		"/data/in/../a":      "/lab/x/a",
		"/data/in/a":         "/lab/x/in/a",
		"/data/in/deep/a":    "/fast/a",
		"/database":          "/database",
		"/same/../same/a":    "/same/../same/a", // behind a link, .. may lead elsewhere
		"/proj/a":            "/proj/a",
		"/proj/in/a":         "/other/a",
		"/elsewhere/../data": "/lab/x",
	} {
		got, moved := c.HostPath(path, Same("/proj"))
		if got != want || moved != (got != path) {
			t.Errorf("%s is %s on the host (%v), want %s", path, got, moved, want)
		}
	}
}

func TestBindsAreInOrderAndOnce(t *testing.T) {
	got := tidy([]Bind{
		{Source: "/p/code", Target: "/p/code"},
		{Source: "/p/code/runs", Target: "/p/code/runs"},               // the bind above includes it
		{Source: "/p/code/key", Target: "/p/code/key", ReadOnly: true}, // the bind above does not replace it, because this one is read-only
		{Source: "/x", Target: "/data/in"},
		{Source: "/data", Target: "/data"},
		{Source: "/y", Target: "/data/in"}, // the last one counts
	})
	want := []Bind{
		{Source: "/data", Target: "/data"}, {Source: "/y", Target: "/data/in"},
		{Source: "/p/code", Target: "/p/code"}, {Source: "/p/code/key", Target: "/p/code/key", ReadOnly: true},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// The same mount twice is valid, as when a job file and its defaults both name it. Two different mounts at the same path are not.
func TestSameMountTwiceIsValid(t *testing.T) {
	for mount, ok := range map[string]bool{"/lab/x:/data": true, "/lab/y:/data": false, "/lab/x:/data:ro": false} {
		c := Config{Runtime: Podman, Image: "image", Mounts: []string{"/lab/x:/data", mount}}
		if err := c.Validate(); (err == nil) != ok {
			t.Errorf("/lab/x:/data and %s: %v", mount, err)
		}
	}
}
