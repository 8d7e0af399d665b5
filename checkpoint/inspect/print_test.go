package inspect

import (
	"strings"
	"testing"
)

func TestPrintedTextsAreExact(t *testing.T) {
	for got, want := range map[string]string{
		codecsText(nil): "-", codecsText(map[string]int64{"raw": 7}): "raw",
		codecsText(map[string]int64{"raw": 1, "planes": 2, "zstd": 1}): "planes 50%, raw 25%, zstd 25%",
		codecsText(map[string]int64{"raw": 0, "zstd": 0}):              "raw 0%, zstd 0%",
		codecsText(map[string]int64{"raw": 917, "huff0": 83}):          "raw 92%, huff0 8%", // rounded to the nearest
		metricsText(map[string]float64{"b": 2, "a": 0.5}):              "a=0.5 b=2", metricsText(map[string]float64{}): "-",
		pinnedText([]string{"", "best"}): "yes,best", ratio(1, 0): "-", ratio(1, 3): "0.333",
		shorten(strings.Repeat("\u00e9", 101)): strings.Repeat("\u00e9", 100) + "...",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
