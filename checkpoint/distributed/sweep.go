package distributed

import (
	"path/filepath"
	"slices"
)

// sweep removes what earlier attempts have left on this node. It runs once this attempt has recorded what it goes on from, and put its own
// first shard there, so nobody will go on from those any more. Ranks of a node may do it at the same time. Foreign files stay.
func (t *tier) sweep() {
	entries, err := t.fs.ReadDir(t.path)
	if err != nil {
		return
	}
	for _, e := range entries {
		if name, ok := parseSaveName(e.Name()); ok && e.IsDir() && t.earlier(name) {
			t.sweepSave(filepath.Join(t.path, e.Name()))
		}
	}
}

func (t *tier) sweepSave(folder string) {
	files, err := t.fs.ReadDir(folder)
	if err != nil {
		return
	}
	slices.Reverse(files) // a record goes before its shard
	for _, f := range files {
		if localNames.MatchString(f.Name()) && !f.IsDir() {
			_ = t.fs.Remove(filepath.Join(folder, f.Name())) // another rank may have been faster
		}
	}
	_ = t.fs.RemoveDir(folder)
}
