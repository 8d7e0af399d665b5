package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// goodRecord is a record written by hand, up to the checksum.
const goodRecord = `{
  "format": "ddpbatch attempt",
  "version": 2,
  "run": "r",
  "attempt": 3,
  "resumed_step": 200,
  "resumed_folder": "step-000000000200.2-5f2c91d0",
  "created": "2026-01-02T03:04:05Z"`

func TestRecordIsReadAndWritten(t *testing.T) {
	t.Parallel()
	want := Record{Run: "r", Attempt: 3, ResumedStep: 200, ResumedFolder: "step-000000000200.2-5f2c91d0",
		Created: time.Unix(1767323045, 0).UTC()}
	got, err := ParseRecord(sealed(goodRecord))
	must(t, err)
	if got != want {
		t.Errorf("read as %+v, want %+v", got, want)
	}
	data, err := want.Encode()
	must(t, err)
	if !bytes.Equal(data, sealed(goodRecord)) {
		t.Errorf("written as\n%s\nnot\n%s", data, sealed(goodRecord))
	}
}

// TestFormatDocumentShowsOurRecord compares the record in docs/format.md with the bytes that the package writes.
func TestFormatDocumentShowsOurRecord(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "format.md"))
	must(t, err)
	_, block, _ := strings.Cut(string(text), "```record\n")
	block, _, ok := strings.Cut(block, "```")
	if !ok {
		t.Fatal("the document has no record")
	}
	r := Record{Run: "mnist", Attempt: 2, ResumedStep: 7, ResumedFolder: StepFolder(7),
		Created: time.Date(2026, 1, 2, 4, 5, 6, 0, time.UTC)}
	data, err := r.Encode()
	must(t, err)
	if string(data) != block {
		t.Errorf("written as\n%s\nthe document says\n%s", data, block)
	}
	if said := fmt.Sprintf("`%s`, %d bytes:\n\n```record", RecordName(r.Attempt, uint32(CRC([]byte(r.Run)))),
		len(data)); !strings.Contains(string(text), said) {
		t.Errorf("the document does not say %q", said)
	}
}

func TestBadRecordIsRefused(t *testing.T) {
	t.Parallel()
	tests := []refusal{
		{"a manifest", "ddpbatch attempt", "ddpbatch checkpoint", "format"},
		{"version 1", `"version": 2`, `"version": 1`, "version"},
		{"attempt 0", `"attempt": 3`, `"attempt": 0`, "attempt"},
		{"negative attempt", `"attempt": 3`, `"attempt": -3`, "attempt"},
		{"attempt too large", `"attempt": 3`, `"attempt": 1000000000`, "attempt"},
		{"no attempt", `"attempt"`, `"other"`, "missing"},
		{"null attempt", `"attempt": 3`, `"attempt": null`, "null"},
		{"no run", `"run"`, `"other"`, "missing"},
		{"no time", `"created"`, `"other"`, "missing"},
		{"null run", `"run": "r"`, `"run": null`, "null"},
		{"long run", `"run": "r"`, `"run": "` + strings.Repeat("r", MaxName+1) + `"`, "257 bytes"},
		{"no step", `"resumed_step"`, `"other"`, "missing"},
		{"no folder", `"resumed_folder"`, `"other"`, "missing"},
		{"doubled", `"resumed_step": 200`, `"resumed_step": 200, "resumed_step": 300`, "twice"},
		{"another step", `"resumed_step": 200`, `"resumed_step": 100`, "step 100"},
		{"step before the first", `"resumed_step": 200`, `"resumed_step": -2`, "step -2"},
		{"from nothing, in a folder", `"resumed_step": 200`, `"resumed_step": -1`, "step -1"},
		{"from a step, in no folder", `"step-000000000200.2-5f2c91d0"`, `""`, "step 200"},
		{"broken folder", `5f2c91d0"`, `5f2c91d0.broken"`, "broken"},
		{"path", `"step-`, `"../step-`, "folder"},
		{"time", `2026-01-02`, `2026-13-02`, "2026-13"},
		{"too long", `"run": "r"`, `"run": "` + strings.Repeat("r", MaxRecordBytes) + `"`, "bytes long"},
	}
	for _, test := range tests {
		_, err := ParseRecord(sealed(changed(t, goodRecord, test.old, test.new)))
		if _, newer := errors.AsType[*Newer](err); err == nil || newer || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want one with %q", test.name, err, test.want)
		}
	}
	_, err := ParseRecord(sealed(changed(t, goodRecord, `"version": 2`, `"version": 3`)))
	if newer, ok := errors.AsType[*Newer](err); !ok || newer.Version != 3 {
		t.Errorf("version 3: error %v", err)
	}
	for _, r := range []Record{{Attempt: 1, ResumedStep: 5}, {Attempt: 0, ResumedStep: -1}, {Attempt: 1, ResumedStep: -1, Run: "\xff"}} {
		if data, err := r.Encode(); err == nil {
			t.Errorf("%+v is written as %s", r, data)
		}
	}
}

func TestEveryRecordBitFlipIsFound(t *testing.T) {
	t.Parallel()
	flipEveryBit(t, sealed(goodRecord), func(data []byte) error { _, err := ParseRecord(data); return err })
}

func TestRecordRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		want := Record{
			Run: rapid.StringN(0, 20, MaxName).Draw(r, "run"), Attempt: rapid.IntRange(1, MaxAttempt).Draw(r, "attempt"),
			ResumedStep: rapid.Int64Range(-1, MaxStep).Draw(r, "step"),
			Created:     time.Unix(rapid.Int64Range(0, 1<<37).Draw(r, "created"), 0).UTC(),
		}
		if want.ResumedStep >= 0 {
			want.ResumedFolder = StepFolder(want.ResumedStep)
		}
		data, err := want.Encode()
		if err != nil {
			r.Fatal(err)
		}
		if got, err := ParseRecord(data); err != nil || got != want {
			r.Fatalf("read as %+v (%v), want %+v", got, err, want)
		}
	})
}

// TestSuperseded follows one run. Attempt 1 saves up to step 300. Attempt 2 resumes from step 200, since step 300 was not committed when it
// looked, and attempt 1 is a zombie from then on. Attempt 3 resumes from attempt 2's step 400. Attempt 4 begins anew. In another run,
// attempt 3 resumes from attempt 1's step 300 before the slow attempt 2 records that it resumed from step 200.
func TestSuperseded(t *testing.T) {
	t.Parallel()
	records := []Record{{Attempt: 3, ResumedStep: 400, ResumedFolder: StepFolder(400)}, {Attempt: 1, ResumedStep: -1},
		{Attempt: 2, ResumedStep: 200, ResumedFolder: StepFolder(200)}}
	anew := append(records, Record{Attempt: 4, ResumedStep: -1})
	late := []Record{{Attempt: 3, ResumedStep: 300, ResumedFolder: StepFolder(300)},
		{Attempt: 2, ResumedStep: 200, ResumedFolder: StepFolder(200)}}
	given := append(late, Record{Attempt: 4, ResumedStep: 100, ResumedFolder: StepFolder(100)})
	tests := []struct {
		name    string
		records []Record
		attempt int
		step    int64
		want    int // 0 means that the step is not superseded
	}{
		{"no records", nil, 1, 300, 0},
		{"where attempt 2 began", records, 1, 200, 0},
		{"before that", records, 1, 100, 0},
		{"the zombie's", records, 1, 300, 2},
		{"the zombie's, one step on", records, 1, 201, 2},
		{"the zombie's, far beyond", records, 1, 500, 3},
		{"attempt 2's where attempt 3 began", records, 2, 400, 0},
		{"attempt 2's beyond", records, 2, 401, 3},
		{"attempt 2's at the zombie's step", records, 2, 300, 0},
		{"attempt 3's", records, 3, 1000, 0},
		{"begun anew, all earlier are given up", anew, 3, 1000, 4},
		{"even step 0", anew, 1, 0, 4},
		{"its own are not", anew, 4, 100, 0},
		{"a later attempt without a record", records, 9, 1, 0},
		{"what attempt 3 took up, before a late record gave it up", late, 1, 300, 0},
		{"another one of that step and history", late, 1, 301, 3},
		{"what attempt 3 took up, given up by attempt 4", given, 1, 300, 4},
	}
	for _, test := range tests {
		by, got := Superseded(test.records, test.attempt, test.step, StepFolder(test.step))
		if got != (test.want > 0) || by.Attempt != test.want {
			t.Errorf("%s: %v, by attempt %d, want %d", test.name, got, by.Attempt, test.want)
		}
	}
	if _, yes := Superseded(late, 1, 300, ""); !yes {
		t.Error("what is in no folder yet was taken up by nobody")
	}
}
