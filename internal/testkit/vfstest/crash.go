package vfstest

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"slices"
)

// crashBlock is the unit in which unsynced file content survives: a disk's sector.
const crashBlock = 512

// CrashClone returns the file system as it may be after a power cut at this moment. Everything that was synced survives. Each other change
// (of a name in a directory, or of a block of a file) survives independently with the given probability, 0 to 100 per cent. A lost block
// below a surviving one reads as zeros. That is harsher than journaling file systems are: the two halves of an unsynced rename of a file
// may be separated. A renamed directory stays in exactly one location. The same state of the generator gives the same clone. m itself is
// not changed.
func (m *Mem) CrashClone(keepUnsyncedPercent int, rng *rand.Rand) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := crash{percent: keepUnsyncedPercent, rng: rng, done: map[*node]*node{}, locations: map[*node]location{}}
	c.locateFolders(m.root)
	return &Mem{root: c.node(m.root), limit: m.limit}
}

type crash struct {
	percent   int
	rng       *rand.Rand
	done      map[*node]*node    // one file under two names remains one file
	locations map[*node]location // of every directory: where it survives; the zero location: nowhere
}

func (c *crash) keep() bool { return c.rng.IntN(100) < c.percent }

// locateFolders decides for every directory where it is after the crash. It does so once, because a directory never has two names, and a
// rename of it is atomic even if that of a file is not.
func (c *crash) locateFolders(root *node) {
	found := map[*node]*links{}
	var order []*node
	var walk func(dir *node)
	see := func(n *node) *links {
		if found[n] == nil {
			found[n] = &links{}
			order = append(order, n)
			walk(n)
		}
		return found[n]
	}
	walk = func(dir *node) {
		for _, name := range dir.names() {
			if n := dir.entries[name]; n != nil && n.dir {
				see(n).now = location{dir, name}
			}
			if n := dir.durable[name]; n != nil && n.dir {
				l := see(n)
				l.durable = append(l.durable, location{dir, name})
			}
		}
	}
	walk(root)
	for _, n := range order {
		c.locations[n] = c.choose(n, found[n])
	}
	// A directory that went back to a name which another one has taken for good must have left it.
	for moved := true; moved; {
		moved = false
		for _, n := range order {
			at := c.locations[n]
			if at == (location{}) || at == found[n].now {
				continue
			}
			if taker := at.dir.entries[at.name]; taker != nil && taker.dir && c.locations[taker] == at {
				c.locations[n], moved = found[n].now, true
			}
		}
	}
}

// location is the place of a directory: its name in another directory.
type location struct {
	dir  *node
	name string
}

// links are the locations of one directory: now (one, or none if it has been removed), and those that are durable.
type links struct {
	now     location
	durable []location
}

// choose returns the new location or a durable one, or the zero location for a directory that has none. If only the directory that it left
// has been synced, the rename is durable with that, because it is one transaction.
func (c *crash) choose(n *node, l *links) location {
	switch {
	case len(l.durable) == 1 && l.durable[0] == l.now, len(l.durable) == 0 && n.nameDurable, c.keep():
		return l.now
	case len(l.durable) == 0:
		return location{}
	}
	return l.durable[c.rng.IntN(len(l.durable))]
}

func (c *crash) node(n *node) *node {
	if out := c.done[n]; out != nil {
		return out
	}
	out := &node{dir: n.dir, nameDurable: n.dir}
	c.done[n] = out
	if n.dir {
		out.entries = c.names(n)
		out.durable = maps.Clone(out.entries)
	} else {
		out.data = c.content(n)
		out.synced = bytes.Clone(out.data)
	}
	return out
}

func (c *crash) names(n *node) map[string]*node {
	out := map[string]*node{}
	for _, name := range n.names() {
		if survivor := c.survivor(n, name); survivor != nil {
			out[name] = c.node(survivor)
		}
	}
	return out
}

// survivor returns what has the name after the crash. Directories have been located. For files, the change of each name survives
// independently.
func (c *crash) survivor(dir *node, name string) *node {
	now, before := dir.entries[name], dir.durable[name]
	for _, n := range []*node{now, before} {
		if n != nil && n.dir && c.locations[n] == (location{dir, name}) {
			return n
		}
	}
	now, before = now.file(), before.file()
	if now != before && !c.keep() {
		return before
	}
	return now
}

func (c *crash) content(n *node) []byte {
	out := bytes.Clone(n.synced)
	for off := 0; off < len(n.data); off += crashBlock {
		end := min(off+crashBlock, len(n.data))
		block := n.data[off:end]
		if end <= len(n.synced) && bytes.Equal(block, n.synced[off:end]) {
			continue
		}
		if !c.keep() {
			continue
		}
		if missing := end - len(out); missing > 0 {
			out = append(out, make([]byte, missing)...)
		}
		copy(out[off:], block)
	}
	return out
}

// file returns n, or nil if it is a directory.
func (n *node) file() *node {
	if n == nil || n.dir {
		return nil
	}
	return n
}

// names returns the names that a directory has now or durably, sorted, because the generator must be asked in the same order every time.
func (n *node) names() []string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(n.entries)), maps.Keys(n.durable))
	slices.Sort(names)
	return slices.Compact(names)
}
