package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"ddpbatch/checkpoint/internal/manifest"
	"ddpbatch/internal/testkit"
	"ddpbatch/internal/testkit/vfstest"
)

func TestOpenRefusesBadOptions(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]Options{
		"codec":     {Codec: "lz4"},
		"keep one":  {Keep: Policy{Last: 1}},
		"keep less": {Keep: Policy{Last: -1}},
		"attempt":   {Attempt: -1},
		"attempts":  {Attempt: manifest.MaxAttempt + 1},
		"run":       {Run: "\xff"},
	} {
		if _, err := Open("x", o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestEmptyFolderHasNoCheckpoints(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	d := openDir(t, Options{FS: m})
	ctx := context.Background()
	if list, err := d.List(ctx); err != nil || len(list) != 0 {
		t.Errorf("List: %v, %v", list, err)
	}
	_, _, err := d.Latest(ctx)
	wantErr(t, "Latest", err, ErrNone)
	_, err = d.Load(ctx, 3)
	wantErr(t, "Load", err, ErrNone)
	wantErr(t, "Find", errOf(d.Find(ctx, 3)), ErrNone)
	if _, err := m.Stat(testPath); err == nil {
		t.Error("looking made the folder")
	}
	must(t, m.Mkdir(testPath))
	must(t, m.Mkdir(d.stepPath(3)))
	_, _, err = d.Latest(ctx)
	wantErr(t, "Latest with a partial step", err, ErrNone)
}

func TestListSaysWhatSaveSaid(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	d := openDir(t, Options{FS: m, Run: "r", Attempt: 7})
	for _, step := range []int64{300, 5, 20} { // not in order
		save(t, d, testState(step, 0))
	}
	info := save(t, d, testState(1000, 0))
	size := int64(len(vfstest.Read(t, m, find(t, m, d.stepPath(1000), "shard-"))) +
		len(vfstest.Read(t, m, d.stepPath(1000)+"/"+manifest.Name)))
	want := Info{Step: 1000, Path: d.stepPath(1000), Bytes: size, World: 4, Committed: true, State: "committed",
		Attempt: 7, Created: d.now(),
		Run: "r", RawBytes: 3208, BaseStep: -1, Metrics: map[string]float64{}}
	if !reflect.DeepEqual(info, want) {
		t.Errorf("Save says %+v, want %+v", info, want)
	}
	list, err := d.List(context.Background())
	must(t, err)
	if len(list) != 4 || !reflect.DeepEqual(list[3], want) {
		t.Errorf("List says %+v", list)
	}
	wantList(t, d, "5 committed, 20 committed, 300 committed, 1000 committed")
	vfstest.Put(t, m, d.stepPath(20)+"/"+manifest.Name, []byte("{}"))
	must(t, m.Remove(d.stepPath(300)+"/"+manifest.Name))
	must(t, m.Remove(find(t, m, d.stepPath(5), "shard-")))
	wantList(t, d, "5 broken, 20 broken, 300 partial, 1000 committed")
}

func TestSaveRefusesBadStates(t *testing.T) {
	t.Parallel()
	good := func() *State { return testState(1, 0) }
	tests := map[string]func(s *State){
		"negative step":   func(s *State) { s.Step = -1 },
		"step too large":  func(s *State) { s.Step = maxStep + 1 },
		"no world":        func(s *State) { s.World = 0 },
		"two of a name":   func(s *State) { s.Tensors[1].Name = s.Tensors[0].Name },
		"no name":         func(s *State) { s.Tensors[0].Name = "" },
		"control in name": func(s *State) { s.Tensors[0].Name = "a\nb" },
		"name not UTF-8":  func(s *State) { s.Tensors[0].Name = "\xff" },
		"dtype":           func(s *State) { s.Tensors[0].DType = "float128" },
		"size":            func(s *State) { s.Tensors[0].Data = s.Tensors[0].Data[1:] },
		"negative shape":  func(s *State) { s.Tensors[0].Shape = []int{-30, -10} },
		"overflow":        func(s *State) { s.Tensors[0].Shape = []int{math.MaxInt, math.MaxInt, 2} },
		"rank":            func(s *State) { s.Tensors[3].Shape = make([]int, manifest.MaxDims+1) },
		"upper-case key":  func(s *State) { s.Values["LR"] = json.RawMessage("1") },
		"no key":          func(s *State) { s.Values[""] = json.RawMessage("1") },
		"long key":        func(s *State) { s.Values[strings.Repeat("k", 65)] = json.RawMessage("1") },
		"no JSON":         func(s *State) { s.Values["a"] = json.RawMessage("{") },
		"nil JSON":        func(s *State) { s.Values["a"] = nil },
		"doubled key":     func(s *State) { s.Values["a"] = json.RawMessage(`{"x":1,"x":2}`) },
		"deep JSON":       func(s *State) { s.Values["a"] = json.RawMessage(strings.Repeat("[", 99) + strings.Repeat("]", 99)) },
		"JSON not UTF-8":  func(s *State) { s.Values["a"] = json.RawMessage("\"\xff\"") },
	}
	for name, spoil := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := vfstest.New(t)
			d := openDir(t, Options{FS: m})
			s := good()
			spoil(s)
			_, err := d.Save(context.Background(), s)
			if err == nil || errors.Is(err, ErrCorrupt) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v, want one line, and none about a file", err)
			}
			if _, err := m.Stat(testPath); err == nil {
				t.Error("something was written")
			}
		})
	}
}

func TestConfigErrorsNameEveryKey(t *testing.T) {
	t.Parallel()
	must(t, DefaultConfig().Validate())
	bad := Config{EverySteps: -1, KeepLast: 1, Codec: "gzip", Resume: "maybe"}
	err := bad.Validate()
	if err == nil {
		t.Fatal("no error")
	}
	for _, word := range []string{"every_steps", "keep_last", "codec", "resume"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q does not name %s", err, word)
		}
	}
}

// A damaged record and a foreign folder exist during the whole run. The log mentions each of them once, not after every save.
func TestWhatStaysIsReportedOnce(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	first := openDir(t, Options{FS: m, Run: "r", Attempt: 1})
	must(t, first.Begin(t.Context(), nil))
	record := find(t, m, first.path, "attempt-")
	data := vfstest.Read(t, m, record)
	data[len(data)/2] ^= 1
	must(t, m.Remove(record))
	vfstest.Put(t, m, record, data)
	putFolder(t, m, first, 9, map[string]string{"MANIFEST.json": "[]", "notes.txt": "mine"})

	var journal testkit.Journal
	d := openDir(t, Options{FS: m, Run: "r", Attempt: 2, Keep: Policy{Last: 2}, Log: journal.Logger()})
	for step := int64(1); step <= 4; step++ {
		save(t, d, testState(step, 0))
		c, err := d.FindLatest(t.Context())
		must(t, err)
		must(t, c.Close())
	}
	for _, what := range []string{"record of an attempt is damaged", "has the name of one"} {
		if got := strings.Count(journal.String(), what); got != 1 {
			t.Errorf("%q is logged %d times:\n%s", what, got, journal.String())
		}
	}
}
