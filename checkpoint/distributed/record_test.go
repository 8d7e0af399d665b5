package distributed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/testkit/vfstest"
)

func TestRecordRoundTrip(t *testing.T) {
	t.Parallel()
	m := vfstest.NewMem()
	meta := Meta{Step: 7, Values: map[string]json.RawMessage{"a": json.RawMessage(`{"b":[1]}`)}, Metrics: map[string]float64{"loss": 0.5}}
	want := record{
		Run: "r", Path: "/p", Attempt: 2, Step: 7, Shards: 3, Info: checkpoint.ShardInfo{File: "f", Size: 9, Raw: 8, CRC: 0xfffffff0},
		World: 3, Plan: plan{{"w", "uint8", []int{8}, []cut{{0, 0, 8}}}}, Meta: &meta,
	}
	must(t, want.write(context.Background(), m, "/record"))
	got, err := readRecord(m, "/record", 0)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v, %v; want %+v", got, err, want)
	}
}

// FuzzRecord checks that readRecord either reads a valid record or refuses the file, and refuses a good record in which one byte differs.
func FuzzRecord(f *testing.F) {
	m := vfstest.NewMem()
	must(f, record{Run: "r", Shard: 1, Shards: 2}.write(context.Background(), m, "/record"))
	good := vfstest.Read(f, m, "/record")
	f.Add(good)
	f.Add([]byte("{}\n00000000\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		m := vfstest.NewMem()
		w, err := m.Create("/record")
		must(t, err)
		_, err = w.Write(data)
		must(t, errors.Join(err, w.Close()))
		r, err := readRecord(m, "/record", 1)
		if err == nil && (r.Shards < 1 || r.Shard < 0 || r.Shard >= r.Shards) {
			t.Fatalf("%q is taken for %+v", data, r)
		}
		if len(data) != len(good) || bytes.Equal(data, good) {
			return
		}
		differ := 0
		for i := range data {
			if data[i] != good[i] {
				differ++
			}
		}
		if differ == 1 && err == nil {
			t.Fatalf("%q is taken for %q", data, good)
		}
	})
}

func TestSaveNamesParseBack(t *testing.T) {
	t.Parallel()
	for _, n := range []saveName{{}, {300, 2, 0xabc, 7}, {999_999_999_999, 999_999_999, 1<<32 - 1, 1}} {
		n.id = max(n.id, 1)
		if got, ok := parseSaveName(n.String()); !ok || got != n {
			t.Errorf("%s is read as %+v, %v", n, got, ok)
		}
	}
	for _, name := range []string{"step-000000000001", "step-000000000001.1-00000000", "step-000000000001.01-00000000-1",
		"step-000000000001.1-00000000-0", "x"} {
		if _, ok := parseSaveName(name); ok {
			t.Errorf("%q is taken", name)
		}
	}
	places := map[string]bool{}
	for _, location := range []checkpoint.Location{{Run: "a/b", Path: "/p"}, {Run: "a.b", Path: "/p"},
		{Run: "a.b", Path: "/q"}, {Run: "a.b/p"}} {
		folder := tierFolder(location)
		if places[folder] || strings.ContainsAny(folder, "/.") {
			t.Errorf("the folder of %v is %q", location, folder)
		}
		places[folder] = true
	}
}

// A record that readRecord would refuse as too long is not written.
func TestRecordTooLongIsNotWritten(t *testing.T) {
	t.Parallel()
	m := vfstest.NewMem()
	r := record{Run: strings.Repeat("x", maxSmallRecord), Shard: 1, Shards: 2}
	if err := r.write(context.Background(), m, "/record"); err == nil || len(tree(m, "/")) > 0 {
		t.Errorf("%v, %v", err, tree(m, "/"))
	}
}
