package text

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestDistance(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"a", "", 1}, {"kitten", "sitting", 3}, {"saturday", "sunday", 3}, {"slrum", "slurm", 2},
		{"nods", "nodes", 1}, {"gpus-per-node", "gpus_per_node", 2}, {"abc", "abc", 0}, {"abc", "xyz", 3},
	} {
		if got := distance(test.a, test.b); got != test.want {
			t.Errorf("distance(%q, %q) = %d, want %d", test.a, test.b, got, test.want)
		}
	}
}

func TestDistanceIsAMetric(t *testing.T) {
	word := rapid.StringMatching(`[ab_]{0,8}`)
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := word.Draw(t, "a"), word.Draw(t, "b"), word.Draw(t, "c")
		ab, ba, bc, ac := distance(a, b), distance(b, a), distance(b, c), distance(a, c)
		if ab != ba || (ab == 0) != (a == b) || ac > ab+bc || ab > max(len(a), len(b)) {
			t.Fatalf("%q %q %q: ab %d, ba %d, bc %d, ac %d", a, b, c, ab, ba, bc, ac)
		}
	})
}

func TestNearestFindsWhatWasMistyped(t *testing.T) {
	names := []string{"epochs", "lr", "nodes", "on"}
	for name, want := range map[string]string{
		"epoch": "epochs", "Epochs": "epochs", "nod": "nodes", "node": "nodes", "rl": "", "xy": "", "": "", "o": "",
		"batch": "", "nodess": "nodes", strings.Repeat("n", 100_000): "",
	} {
		if got := Nearest(name, names); got != want {
			t.Errorf("Nearest(%.20q) = %q, want %q", name, got, want)
		}
	}
}
