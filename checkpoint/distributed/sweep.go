package distributed

import (
	"path/filepath"
	"slices"
)

// sweepEarlier removes, once, what earlier attempts have left on this node. It does so when this attempt has recorded what it goes on from, so nobody
// will go on from those any more, and this rank's first shard is there, if it has one, or it ends.
func (s *Saver) sweepEarlier() {
	if s.begun && !s.tier.swept {
		s.tier.swept = true
		s.tier.sweep()
		s.tier.others.sweep()
	}
}

// sweep removes what earlier attempts have left. Ranks of a node may do it at the same time. Foreign files stay.
func (t *tier) sweep() {
	entries, err := t.fs.ReadDir(t.path)
	if err != nil {
		return
	}
	for _, e := range entries {
		if name, ok := parseSaveName(e.Name()); ok && e.IsDir() && t.earlier(name) {
			t.sweepSave(filepath.Join(t.path, e.Name()))
		} else if t.otherProbe(e.Name()) && !e.IsDir() {
			_ = t.fs.Remove(filepath.Join(t.path, e.Name())) // another rank may have been faster
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
		if localNames().MatchString(f.Name()) && !f.IsDir() {
			_ = t.fs.Remove(filepath.Join(folder, f.Name())) // another rank may have been faster
		}
	}
	_ = t.fs.RemoveDir(folder)
}
