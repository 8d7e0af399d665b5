package report

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/testkit/fakeslurm"
)

// TestPageInChromium looks at a page in a real browser. It checks the colors in light and dark mode, that the curve reaches from one side
// to the other, that nothing is cut off, that the console stays empty unless the page has a script, and that the page can be printed.
func TestPageInChromium(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the browser takes seconds")
	}
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("there is no chromium here (Debian's package of that name)")
	}
	page := filepath.Join(t.TempDir(), "page.html")
	d, text := pageOf(t, fakeslurm.New(t), eventful(t))
	must(t, d.Save(t.Context(), page))
	b := chromium{t, browser, page}

	for _, look := range []struct {
		name         string
		scheme       int // Blink's preferredColorScheme
		paper, curve color.RGBA
	}{
		{"light", 1, color.RGBA{0xff, 0xff, 0xff, 0xff}, color.RGBA{0x2f, 0x6f, 0xb4, 0xff}},
		{"dark", 0, color.RGBA{0x15, 0x17, 0x1a, 0xff}, color.RGBA{0x6b, 0xa7, 0xe6, 0xff}},
	} {
		shot := filepath.Join(t.TempDir(), look.name+".png")
		said := b.run(page, fmt.Sprintf("--blink-settings=preferredColorScheme=%d", look.scheme), "--window-size=1160,900",
			"--hide-scrollbars", "--screenshot="+shot)
		if strings.Contains(said, "CONSOLE") {
			t.Errorf("%s: the console says:\n%s", look.name, said)
		}
		picture := decode(t, shot)
		for y := range picture.Bounds().Dy() {
			for _, x := range []int{0, 8, 1151, 1159} {
				if got := rgba(picture, x, y); got != look.paper {
					t.Fatalf("%s: at the margin, %d,%d, is %v, not %v", look.name, x, y, got, look.paper)
				}
			}
		}
		if box := boxOf(picture, look.curve); box.Min.X > 130 || box.Max.X < 900 || box.Dx() > 1090 || box.Dy() < 100 {
			t.Errorf("%s: the curves lie in %v", look.name, box)
		}
	}

	pdf := filepath.Join(t.TempDir(), "page.pdf")
	b.run(page, "--no-pdf-header-footer", "--print-to-pdf="+pdf)
	if data, err := os.ReadFile(pdf); err != nil || !bytes.HasPrefix(data, []byte("%PDF-")) || len(data) < 20_000 {
		t.Errorf("printed: %d bytes, %v", len(data), err)
	}

	// a script in the page would not run, and the console would report it
	scripted := filepath.Join(t.TempDir(), "scripted.html")
	text = strings.Replace(text, "</body>", "<script>document.body.textContent = ''</script><img src=\"file:///x.png\"></body>", 1)
	must(t, os.WriteFile(scripted, []byte(text), 0o600))
	if said := b.run(scripted, "--dump-dom"); strings.Count(said, "violates the following Content Security Policy directive") < 2 ||
		!strings.Contains(said, "Checkpoints") {
		t.Errorf("the page's policy lets scripts and pictures through:\n%.3000s", said)
	}
}

// eventful returns a run that failed, went on from an earlier step, had a slow rank and NaN, and has settings.
func eventful(t *testing.T) *rundir.Dir {
	run := fakeslurm.Run(t, "[setup.env]\nOMP_NUM_THREADS = \"4\"\n")
	at := noon
	add := func(e rundir.Event) {
		e.Time = at
		must(t, run.Append(e))
	}
	var metrics bytes.Buffer
	add(rundir.Event{Event: rundir.EventSubmit})
	for attempt := range 2 {
		_, err := run.ClaimAttempt()
		must(t, err)
		at = at.Add(10 * time.Minute)
		add(rundir.Event{Event: rundir.EventBegin, Attempt: attempt + 1, Job: "12"})
		for step := attempt*1000 + 10; step <= 1500+attempt*1500; step += 10 {
			at = at.Add(time.Second)
			fmt.Fprintf(&metrics, `{"time":%q,"attempt":%d,"step":%d,"steps":5000,"loss":%g,"lr":0.1}`+"\n",
				at.Format(time.RFC3339), attempt+1, step, 0.2+3*math.Exp(-float64(step)/800)+0.05*math.Sin(float64(step)))
			if step%100 != 0 {
				continue
			}
			line := rundir.StepTimes{Time: at, Attempt: attempt + 1, Step: int64(step), WindowS: 10}
			for rank := range 8 {
				line.Hosts, line.StepS = append(line.Hosts, fmt.Sprintf("n%d", rank/4)), append(line.StepS, 0.1)
				if rank == 5 {
					line.StepS[5] = 0.3
				}
			}
			line.Stragglers = []rundir.Straggler{{Rank: 5, Host: "n1", Times: 3, Part: rundir.PartInput}}
			_, err := run.AppendStepTimes(line, 0)
			must(t, err)
		}
		if attempt == 0 {
			add(rundir.Event{Event: rundir.EventEnd, Attempt: 1, Cause: "crash", Node: "n1", Step: 1500,
				Detail: "rank 5 on n1 was killed by SIGKILL"})
			add(rundir.Event{Event: rundir.EventRequeue, Attempt: 1, Cause: "crash", Detail: "requeue 1 of 3"})
		}
	}
	must(t, os.WriteFile(run.MetricsPath(), metrics.Bytes(), 0o600))
	must(t, os.MkdirAll(filepath.Join(run.CheckpointsPath(), "step-000000000001"), 0o700))
	return run
}

// chromium is a headless browser.
type chromium struct {
	t             *testing.T
	browser, page string
}

// run opens a page in the browser, and returns what the browser prints.
func (b chromium) run(page string, flags ...string) string {
	b.t.Helper()
	profile, err := os.MkdirTemp("", "chromium-")
	must(b.t, err)
	defer os.RemoveAll(profile)
	ctx, cancel := context.WithTimeout(b.t.Context(), 2*time.Minute)
	defer cancel()
	args := append([]string{
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
		"--disable-component-update",
		"--user-data-dir=" + profile, "--enable-logging=stderr",
	}, flags...)
	cmd := exec.CommandContext(ctx, b.browser, append(args, "file://"+page)...)
	said, err := cmd.CombinedOutput()
	if err != nil {
		b.t.Fatalf("%s: %v\n%.3000s", b.browser, err, said)
	}
	return string(said)
}

func decode(t *testing.T, path string) image.Image {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	picture, err := png.Decode(bytes.NewReader(data))
	must(t, err)
	return picture
}

func rgba(picture image.Image, x, y int) color.RGBA {
	return color.RGBAModel.Convert(picture.At(x, y)).(color.RGBA)
}

// boxOf returns the rectangle that a color covers in a picture.
func boxOf(picture image.Image, want color.RGBA) (box image.Rectangle) {
	for y := range picture.Bounds().Dy() {
		for x := range picture.Bounds().Dx() {
			if rgba(picture, x, y) == want {
				box = box.Union(image.Rect(x, y, x+1, y+1))
			}
		}
	}
	return box
}
