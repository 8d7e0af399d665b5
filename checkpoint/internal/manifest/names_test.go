package manifest

import (
	"testing"

	"pgregory.net/rapid"
)

const testRun = 0x0badcafe

// TestNamesAreAsDocumented compares the names with those in docs/format.md.
func TestNamesAreAsDocumented(t *testing.T) {
	t.Parallel()
	tag := Tag{Attempt: 12, Run: testRun, Nonce: 3}
	for got, want := range map[string]string{
		tag.ShardName(0, 16):   "shard-00000-of-00016.12-0badcafe-00000003.ddpt",
		tag.ManifestTmp():      "MANIFEST.12-0badcafe-00000003.json.tmp",
		tag.RecordTmp():        "attempt.12-0badcafe-00000003.json.tmp",
		tag.ProbeName():        "PROBE.12-0badcafe-00000003.tmp",
		RecordName(12, 0xa):    "attempt-000000012-0000000a.json",
		GateName(12, 0xa):      "attempt-000000012-0000000a.removing",
		StepFolder(12):         "step-000000000012",
		FreshFolder(12, 3, 10): "step-000000000012.3-0000000a",
		BrokenFolder("x"):      "x.broken",
		BrokenFolderAgain(FreshFolder(12, 3, 10), 11): "step-000000000012.3-0000000a.broken-0000000b",
		PinName(""):     "PINNED",
		PinName("best"): "PINNED.best",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestOwnFile(t *testing.T) {
	t.Parallel()
	own := Tag{Attempt: 12, Run: testRun, Nonce: 3}
	tests := []struct {
		name    string
		attempt int // -1 means that it is not ours
	}{
		{own.ShardName(0, 1), 12},
		{own.ShardName(65535, 65536) + TmpSuffix, 12},
		{own.ManifestTmp(), 12},
		{own.RecordTmp(), 12},
		{own.ProbeName(), 12},
		{"shard-00000-of-00001.12-0badcafe-00000003.ddpt", 12},
		{"shard-00000-of-00001.0-0badcafe-00000003.ddpt", 0},
		{"MANIFEST.12-0badcafe-00000003.json.tmp", 12},
		{Tag{Attempt: 12, Run: 1, Nonce: 3}.ShardName(0, 1), -1},
		{Tag{Attempt: 12, Run: 1, Nonce: 3}.ManifestTmp(), -1},
		{Name, -1},
		{DeletingName, -1},
		{PinnedName, -1},
		{"", -1},
		{RecordName(12, 0xa), -1},
		{GateName(12, 0xa), -1},
		{"MANIFEST.12-0badcafe-00000003.json", -1},
		{"shard-0-of-1.12-0badcafe-00000003.ddpt", -1},
		{"shard-00001-of-00001.12-0badcafe-00000003.ddpt", -1},
		{"shard-00000-of-65537.12-0badcafe-00000003.ddpt", -1},
		{"shard-00000-of-00001.012-0badcafe-00000003.ddpt", -1},
		{"shard-00000-of-00001.12-0BADCAFE-00000003.ddpt", -1},
		{"shard-00000-of-00001.12-0badcafe-00000003.ddpt.bak", -1},
		{"shard-00000-of-00001.12-0badcafe-00000003xddpt", -1},
		{"x-shard-00000-of-00001.12-0badcafe-00000003.ddpt", -1},
		{"shard-00000-of-00001.9999999999-0badcafe-00000003.ddpt", -1},
		{"shard-00000-of-00001.12-0badcafe-00000003.ddpt\n", -1},
		{"a/shard-00000-of-00001.12-0badcafe-00000003.ddpt", -1},
	}
	for _, test := range tests {
		attempt, ok := OwnFile(test.name, testRun)
		if !ok {
			attempt = -1
		}
		if attempt != test.attempt {
			t.Errorf("%q: attempt %d, want %d", test.name, attempt, test.attempt)
		}
	}
	if !isShardName(own.ShardName(3, 7), 3, 7) || isShardName(own.ShardName(3, 7), 3, 8) || isShardName(own.ShardName(3, 7), 2, 7) ||
		isShardName(own.ShardName(3, 7)+TmpSuffix, 3, 7) {
		t.Error("isShardName confuses shards")
	}
}

func TestForeignNamesAreNotOurs(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"step-12", "step-0000000000012", "step-00000000001x", "step--00000000012", "step-000000000012.", "step-000000000012.bak",
		"step-000000000012.1-0000000A", "step-000000000012.01-0000000a", "step-000000000012.1-a", "step-000000000012.-1-0000000a",
		"step-000000000012.broken.broken", "step-000000000012.broken-a", "step-000000000012.broken-0000000a.1-0000000a",
		"step-000000000012\n", " step-000000000012", "step-000000000012/", "",
	} {
		if f, ok := ParseFolder(name); ok {
			t.Errorf("%q is read as %+v", name, f)
		}
	}
	for _, name := range []string{
		"attempt-12-0000000a.json", "attempt-0000000012-0000000a.json", "attempt-00000000x-0000000a.json",
		"attempt-000000012-0000000a.json.tmp",
		"attempt-000000012-0000000a_json", "attempt-000000012.json", "attempt-000000012-0000000A.json", "attempt-000000012-a.json", "",
	} {
		if a, _, ok := ParseRecordName(name); ok {
			t.Errorf("%q is read as attempt %d", name, a)
		}
	}
	for _, name := range []string{
		RecordName(12, 0xa), "attempt-12-0000000a.removing", "attempt-000000012-0000000A.removing",
		"attempt-000000012-0000000a.removing.tmp", "",
	} {
		if a, _, ok := ParseGateName(name); ok {
			t.Errorf("%q is read as the gate of attempt %d", name, a)
		}
	}
	for _, name := range []string{"pinned", "PINNED.", "PINNED-best", "PINNEDbest", "xPINNED", ""} {
		if label, ok := ParsePin(name); ok {
			t.Errorf("%q is read as a pin labelled %q", name, label)
		}
	}
	for label, good := range map[string]bool{"": true, "best": true, "v1_A-z": true, "a.b": false, "a/b": false, "..": false,
		"ü": false, "a\n": false} {
		if err := CheckPinLabel(label); (err == nil) != good {
			t.Errorf("label %q: error %v", label, err)
		}
	}
}

// The functions that parse names return everything that the functions that write names were given.
func TestNamesRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		tag := Tag{Attempt: rapid.IntRange(0, MaxAttempt).Draw(r, "attempt"), Run: rapid.Uint32().Draw(r, "run"),
			Nonce: rapid.Uint32().Draw(r, "nonce")}
		n := rapid.IntRange(1, MaxShards).Draw(r, "shards")
		want := shardFile{Shard: rapid.IntRange(0, n-1).Draw(r, "shard"), Shards: n, Tag: tag, Tmp: rapid.Bool().Draw(r, "tmp")}
		name := tag.ShardName(want.Shard, n)
		if want.Tmp {
			name += TmpSuffix
		}
		if got, ok := parseShardName(name); !ok || got != want {
			r.Fatalf("%q is read as %+v, %v", name, got, ok)
		}
		for _, name := range []string{name, tag.ManifestTmp(), tag.RecordTmp(), tag.ProbeName()} {
			if got, ok := ParseTag(name); !ok || got != tag {
				r.Fatalf("%q has the tag %+v, %v; want %+v", name, got, ok, tag)
			}
		}
		f := Folder{Step: rapid.Int64Range(0, MaxStep).Draw(r, "step"), Fresh: rapid.Bool().Draw(r, "fresh"),
			Broken: rapid.Bool().Draw(r, "broken")}
		if f.Fresh {
			f.Attempt, f.Nonce = tag.Attempt, tag.Nonce
		}
		if f.Broken && rapid.Bool().Draw(r, "again") {
			f.Again, f.BrokenNonce = true, tag.Run
		}
		if got, ok := ParseFolder(f.String()); !ok || got != f {
			r.Fatalf("%q is read as %+v, %v; want %+v", f, got, ok, f)
		}
		if a, run, ok := ParseRecordName(RecordName(tag.Attempt, tag.Run)); !ok || a != tag.Attempt || run != tag.Run {
			r.Fatalf("%q is read as %d, %x, %v", RecordName(tag.Attempt, tag.Run), a, run, ok)
		}
		if a, run, ok := ParseGateName(GateName(tag.Attempt, tag.Run)); !ok || a != tag.Attempt || run != tag.Run {
			r.Fatalf("%q is read as %d, %x, %v", GateName(tag.Attempt, tag.Run), a, run, ok)
		}
	})
}

// String is the inverse of ParseFolder.
func (f Folder) String() string {
	name := StepFolder(f.Step)
	if f.Fresh {
		name = FreshFolder(f.Step, f.Attempt, f.Nonce)
	}
	switch {
	case f.Broken && f.Again:
		return BrokenFolderAgain(name, f.BrokenNonce)
	case f.Broken:
		return BrokenFolder(name)
	}
	return name
}
