package data

import (
	"path/filepath"
	"strings"
	"testing"
)

// CountRows returns the number of rows that a data set of the same files has.
func TestCountRowsIsWhatTheDataHas(t *testing.T) {
	images := idxBytes([]uint32{2, 1, 3}, 1, 2, 3, 4, 5, 6)
	npy := npyFile(1, npyDictOf("<f4", "(2, 3)"), bytesOf([]float32{1, 2, 3, 4, 5, 6}))
	cifar := writeFile(t, "c.bin", make([]byte, 3*cifarRow))
	for name, test := range map[string]struct {
		kind  string
		paths []string
		want  int
		says  string // of the error
	}{
		"mnist":               {"mnist", []string{writeFile(t, "i", images)}, 2, ""},
		"mnist, packed":       {"mnist", []string{writeFile(t, "i.gz", gzipped(t, images))}, 2, ""},
		"npy":                 {"npy", []string{writeFile(t, "x.npy", npy)}, 2, ""},
		"cifar10":             {"cifar10", []string{cifar, cifar}, 6, ""},
		"csv":                 {"csv", []string{writeFile(t, "x.csv", []byte("1,2\n"))}, 0, "read csv: the headers"},
		"no file":             {"npy", nil, 0, "read npy: the headers"},
		"a file not there":    {"npy", []string{filepath.Join(t.TempDir(), "x")}, 0, "no such file"},
		"a folder":            {"mnist", []string{t.TempDir()}, 0, "not a regular file"},
		"mnist, cut short":    {"mnist", []string{writeFile(t, "s", images[:6])}, 0, "cut short in the header"},
		"mnist, packed badly": {"mnist", []string{writeFile(t, "b.gz", []byte{0x1f, 0x8b, 1})}, 0, "read mnist: "},
		"npy that is none":    {"npy", []string{writeFile(t, "n.npy", images)}, 0, "not a .npy file"},
	} {
		rows, err := CountRows(test.kind, test.paths...)
		if rows != test.want || (err != nil) != (test.says != "") || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %d, %v; want %d, %q", name, rows, err, test.want, test.says)
		}
	}
}
