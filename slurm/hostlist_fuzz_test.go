package slurm_test

import (
	"slices"
	"strings"
	"testing"

	"ddpbatch/slurm"
)

func FuzzExpandHostlist(f *testing.F) {
	for _, list := range []string{
		"n[1-4]", "rack[0-1]node[00-01]-ib[0-1]", "n[01-03,5,007]", " n1 , n2 ", "n[3-1]", "n[1-", "n1-4]",
		"n[0-999999999]", "a[0-1]b[0-1]c[0-1]x,,y", "n{1,2}", "(null)", "n[98-101]\n",
	} {
		f.Add(list)
	}
	f.Fuzz(func(t *testing.T, list string) {
		const most = 1000
		n, countErr := slurm.CountHosts(list)
		hosts, err := slurm.ExpandHostlist(list, most)
		if err != nil {
			if countErr == nil && n <= most {
				t.Fatalf("%q counts %d hosts but does not expand: %v", list, n, err)
			}
			return
		}
		if countErr != nil || n != len(hosts) || n > most {
			t.Fatalf("%q: %d hosts, counted %d, %v", list, len(hosts), n, countErr)
		}
		for _, host := range hosts {
			if host == "" || len(host) > 255 || strings.ContainsAny(host, "[], \t\r\n\x00") {
				t.Fatalf("%q gives the name %q", list, host)
			}
		}
		folded := slurm.FoldHostlist(hosts)
		back, err := slurm.ExpandHostlist(folded, most)
		if err != nil || !slices.Equal(back, hosts) {
			t.Fatalf("%q folds to %q, which gives %q, %v", list, folded, back, err)
		}
		if again := slurm.FoldHostlist(back); again != folded {
			t.Fatalf("%q folds to %q, then to %q", list, folded, again)
		}
	})
}
