package report

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

var noon = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

// fileOf returns a metrics file that is read as a whole.
func fileOf(text string) source {
	return source{strings.NewReader(text), int64(len(text)), maxRead}
}

func read(t *testing.T, text string) Metrics {
	t.Helper()
	c, err := collect(t.Context(), fileOf(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return c.metrics
}

// find returns the curve of a metric.
func find(t *testing.T, m Metrics, name string) Curve {
	t.Helper()
	at := slices.IndexFunc(m.Curves, func(c Curve) bool { return c.Name == name })
	if at < 0 {
		t.Fatalf("there is no curve of %s in %v", name, m.Curves)
	}
	return m.Curves[at]
}

func TestMetricsAreReadByAttempt(t *testing.T) {
	m := read(t, `{"time":"2026-11-27T12:00:00Z","attempt":1,"step":10,"steps":60,"epoch":0,"loss":4,"lr":0.1,"left_s":9}
{"time":"2026-11-27T12:00:10Z","attempt":1,"step":20,"loss":2,"eval_loss":3,"save_s":0.5,"save_stall_s":0.25}
rubbish

{"attempt":1,"step":30,"loss":NaN}
{"time":"2026-11-27T12:01:00Z","attempt":2,"step":20,"loss":2.5,"resume_step":12,"resume_load_s":3}
{"attempt":2,"step":30,"loss":null,"eval_loss":1}
{"attempt":2,"step":40,"loss":1`)
	if m.Lines != 7 || m.Rubbish != 2 || m.Read != m.Bytes {
		t.Errorf("%d lines, %d are rubbish, %d bytes of %d", m.Lines, m.Rubbish, m.Read, m.Bytes)
	}
	want := []Section{
		{Attempt: 1, First: 10, Last: 30, Began: noon, Ended: noon.Add(10 * time.Second), Kept: 13, from: 10},
		{Attempt: 2, First: 20, Last: 30, Began: noon.Add(time.Minute), Ended: noon.Add(time.Minute), Kept: 31, from: 13},
	}
	if !slices.Equal(m.Sections, want) {
		t.Errorf("sections %+v; want %+v", m.Sections, want)
	}
	if got := plainText(find(t, m, "loss")); got != "0: 10=4 20=2 30=nil(1); 1: 20=2.5" {
		t.Errorf("loss is %s", got)
	}
	if got := plainText(find(t, m, "eval_loss")); got != "0: 20=3; 1: 30=1" {
		t.Errorf("eval_loss is %s", got)
	}
	if len(m.Curves) != 3 {
		t.Errorf("there are more curves than of loss, lr and eval_loss: %v", m.Curves)
	}
}

// plainText describes a curve whose points each stand for one value.
func plainText(c Curve) string {
	var parts []string
	for _, part := range c.Parts {
		line := fmt.Sprintf("%d:", part.Section)
		for _, p := range part.Points {
			if p.Mean == nil {
				line += fmt.Sprintf(" %d=nil(%d)", p.Step, p.NonFinite)
			} else {
				line += fmt.Sprintf(" %d=%v", p.Step, *p.Mean)
			}
		}
		parts = append(parts, line)
	}
	return strings.Join(parts, "; ")
}

// TestMetricsWithoutSteps: a script may write any lines.
func TestMetricsWithoutSteps(t *testing.T) {
	if got := plainText(find(t, read(t, `{"loss":3}`+"\n"+`{"loss":2}`+"\n"+`{"loss":1}`), "loss")); got != "0: 1=3 2=2 3=1" {
		t.Errorf("lines without steps are %s", got)
	}
	m := read(t, `{"step":5,"loss":3}`+"\n"+`{"val":2}`+"\n"+`{"step":6,"loss":1}`+"\n"+`{"step":1,"loss":9}`)
	if got := plainText(find(t, m, "val")); got != "0: 5=2" {
		t.Errorf("a line between two steps is %s", got)
	}
	if got := plainText(find(t, m, "loss")); got != "0: 5=3 6=1; 1: 1=9" {
		t.Errorf("steps that go back are %s", got)
	}
	for _, step := range []string{"1e300", "-1e300", "NaN", "1.5", "-3"} {
		read(t, `{"step":`+step+`,"loss":1}`+"\n"+`{"attempt":`+step+`,"step":2,"loss":1}`)
	}
}

// TestThinningKeepsExtremes: whatever the values are, the points keep the order of steps, the number of values, the smallest and the
// largest value.
func TestThinningKeepsExtremes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		var c curve
		values, other, step := []float64(nil), 0, random.Int64N(10)
		stride := 1 + random.Int64N(1<<(1+random.IntN(40)))
		for i := range 1 + random.IntN(5000) {
			value := random.NormFloat64() * math.Pow(10, float64(random.IntN(600)-300))
			if random.IntN(10) == 0 {
				value = []float64{math.NaN(), math.Inf(1), math.Inf(-1)}[random.IntN(3)]
				other++
			} else {
				values = append(values, value)
			}
			c.add(i/1000, step, value)
			step += random.Int64N(stride)
		}
		got := 0
		var lowest, highest []float64
		for _, part := range c.parts {
			before := int64(-1)
			for i := range part.buckets {
				p := part.buckets[i].point()
				if p.Step <= before {
					t.Fatalf("step %d comes after %d", p.Step, before)
				}
				before = p.Step
				got += p.Values
				other -= p.NonFinite
				if p.Mean == nil {
					continue
				}
				lowest, highest = append(lowest, *p.Min), append(highest, *p.Max)
				if slack := 1e-9 * (math.Abs(*p.Min) + math.Abs(*p.Max)); *p.Mean < *p.Min-slack || *p.Mean > *p.Max+slack {
					t.Fatalf("%g is not a mean of values from %g to %g", *p.Mean, *p.Min, *p.Max)
				}
			}
		}
		if other != 0 || got-len(values) < 0 || c.total > maxPoints {
			t.Fatalf("%d points have %d values of %d, and %d others are left", c.total, got, len(values), other)
		}
		if len(values) > 0 && (slices.Min(lowest) != slices.Min(values) || slices.Max(highest) != slices.Max(values)) {
			t.Fatalf("values from %g to %g became %g to %g", slices.Min(values), slices.Max(values),
				slices.Min(lowest), slices.Max(highest))
		}
	}
}

// TestSectionsAreBounded: if lines jump between attempts forever, the newest sections stay, with the points that are kept of them.
func TestSectionsAreBounded(t *testing.T) {
	var text strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&text, `{"attempt":%d,"step":%d,"loss":%d}`+"\n", i+1, i%7, i)
	}
	m := read(t, text.String())
	if n := len(m.Sections); n != maxSections || m.Sections[n-1].Attempt != 1000 || m.Sections[0].Attempt != 801 {
		t.Errorf("%d sections, from %+v to %+v", n, m.Sections[0], m.Sections[n-1])
	}
	parts := find(t, m, "loss").Parts
	if len(parts) != maxSections || parts[0].Section != 0 || *parts[0].Points[0].Mean != 800 {
		t.Errorf("%d parts, the first is %+v", len(parts), parts[0])
	}
}

// TestMetricsOfManyNames: if the file has very many names, those that are common stay.
func TestMetricsOfManyNames(t *testing.T) {
	var text strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&text, `{"step":%d,"m%d":1,%q:2}`+"\n", i, i%5000, strings.Repeat("x", maxName+1))
	}
	text.WriteString(`{"step":10000,"loss":1}` + "\n{")
	for i := range 1000 {
		fmt.Fprintf(&text, `"n%d":%d,`, i, i)
	}
	text.WriteString(`"m1":7}`)
	m := read(t, text.String())
	if find(t, m, "loss"); len(m.Curves) != maxCurves+1 || m.Left != 5000-maxCurves+1+1000 {
		t.Errorf("%d curves; %d metrics were left out", len(m.Curves), m.Left)
	}
	if got := find(t, m, "m1").Parts[0].Points; *got[len(got)-1].Mean != 7 {
		t.Errorf("the last of m1 is %v", *got[len(got)-1].Mean)
	}
}

// TestLinesComeWhole reads texts in pieces of many sizes.
func TestLinesComeWhole(t *testing.T) {
	long := strings.Repeat("x", maxLine+10)
	for _, test := range []struct{ name, text, want string }{
		{"none", "", ""},
		{"one", "a", "a"},
		{"ends", "a\nb\n", "a|b"},
		{"blank", "\n\na\n\nb", "||a||b"},
		{"long", "a\n" + long + "\nb\n", "a||b"},
		{"long at the end", "a\n" + long, "a|"},
		{"blocks", strings.Repeat(strings.Repeat("y", 1000)+"\n", 1000),
			strings.TrimSuffix(strings.Repeat(strings.Repeat("y", 1000)+"|", 1000), "|")},
	} {
		var got []string
		n, err := fileOf(test.text).lines(t.Context(), func(line []byte) { got = append(got, string(line)) })
		if err != nil || n != int64(len(test.text)) || strings.Join(got, "|") != test.want {
			t.Errorf("%s: %d lines of %d bytes, %v", test.name, len(got), n, err)
		}
	}
	if _, err := (source{readerAt{}, 10, maxRead}).lines(t.Context(), nil); !errors.Is(err, iotest.ErrTimeout) {
		t.Errorf("a file that cannot be read: %v", err)
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if _, err := fileOf("a\n").lines(stopped, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a read that is not wanted any more: %v", err)
	}
	shorter := source{strings.NewReader("a\nb"), 100, maxRead}
	if n, err := shorter.lines(t.Context(), func([]byte) {}); err != nil || n != 3 {
		t.Errorf("a file that has become shorter: %d bytes, %v", n, err)
	}
}

// readerAt always fails.
type readerAt struct{}

func (readerAt) ReadAt([]byte, int64) (int, error) { return 0, iotest.ErrTimeout }

// steps is a file of any length, with a line of 64 bytes for each step.
type steps struct{}

func (steps) ReadAt(p []byte, off int64) (int, error) {
	line := make([]byte, 0, 64)
	for n := 0; n < len(p); {
		at := off + int64(n)
		line = fmt.Appendf(line[:0], `{"attempt":1,"step":%d,"loss":%d`, at/64, at/64)
		line = append(line, bytes.Repeat([]byte{' '}, 62-len(line))...)
		line = append(line, "}\n"...)
		n += copy(p[n:], line[at%64:])
	}
	return len(p), nil
}

// TestHugeFileIsReadInBlocks: in 10 GB of metrics, the blocks that are read are spread over the whole file, including its beginning and its
// end.
func TestHugeFileIsReadInBlocks(t *testing.T) {
	const size, most = 10 << 30, 8 << 20
	c, err := collect(t.Context(), source{steps{}, size, most}, nil)
	m := c.metrics
	if err != nil || m.Read != most || m.Rubbish > 0 || m.Lines < most/64-2*most/readBlock {
		t.Fatalf("%d lines, %d of them rubbish, in %d bytes; %v", m.Lines, m.Rubbish, m.Read, err)
	}
	if s := m.Sections[0]; len(m.Sections) != 1 || s.First != 0 || s.Last != size/64-1 {
		t.Errorf("the sections are %+v", m.Sections)
	}
	points := find(t, m, "loss").Parts[0].Points
	widest := int64(0)
	for i := range points[1:] {
		widest = max(widest, points[i+1].Step-points[i].Step)
	}
	if even := int64(size / 64 / (most / readBlock)); widest > 2*even {
		t.Errorf("between two points lie %d steps; the blocks lie %d apart", widest, even)
	}
}

// FuzzMetrics: whatever a file holds, the result is bounded, and can be written as JSON.
func FuzzMetrics(f *testing.F) {
	f.Add([]byte(`{"time":"2026-11-27T12:00:00Z","attempt":1,"step":10,"loss":4,"save_s":1}` + "\n" + `{"attempt":2,"step":5,"loss":NaN}`))
	f.Add([]byte(`{"step":-9e15,"a":1e308}` + "\n" + `{"step":9e15,"a":-1e308}` + "\n\n" + `{"a":{}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := collect(t.Context(), source{bytes.NewReader(data), int64(len(data)), maxRead}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := json.Marshal(c.metrics); err != nil {
			t.Fatal(err)
		}
		for _, curve := range c.metrics.Curves {
			for _, part := range curve.Parts {
				if part.Section < 0 || part.Section >= len(c.metrics.Sections) || len(part.Points) == 0 {
					t.Fatalf("%s has a part %+v", curve.Name, part)
				}
			}
		}
	})
}

// BenchmarkMetrics reads what the built-in trainer writes in ten million steps, which is a million lines.
func BenchmarkMetrics(b *testing.B) {
	const lines = 1_000_000
	var text bytes.Buffer
	for i := range lines {
		fmt.Fprintf(&text, `{"time":"2026-11-27T10:17:29.634Z","attempt":1,"step":%d,"steps":10000000,"epoch":%d,"loss":%g,"lr":0.05,`+
			`"samples_per_s":220060.54759660354,"comm_share":0.8305808859190649,"overlap":0.5,"left_s":0.143087892}`+"\n",
			i*10, i/1000, 3*math.Exp(-float64(i)/2e5))
	}
	b.SetBytes(int64(text.Len()))
	for b.Loop() {
		c, err := collect(b.Context(), source{bytes.NewReader(text.Bytes()), int64(text.Len()), maxRead}, nil)
		if err != nil || c.metrics.Lines != lines {
			b.Fatal(c.metrics.Lines, err)
		}
	}
}
