package vfs

// place is where a folder stands: its name in another folder.
type place struct {
	dir  *node
	name string
}

// links are the places of one folder: now (one, or none if it has been removed) and those that
// are durable.
type links struct {
	now     place
	durable []place
}

// settle decides for every folder where it is after the crash, once, since a folder has never two
// names and a rename of it is atomic even where that of a file comes apart.
func (c *crash) settle(root *node) {
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
				see(n).now = place{dir, name}
			}
			if n := dir.durable[name]; n != nil && n.dir {
				l := see(n)
				l.durable = append(l.durable, place{dir, name})
			}
		}
	}
	walk(root)
	for _, n := range order {
		c.places[n] = c.choose(n, found[n])
	}
	// A folder that went back to a name which another one has taken for good must have left it.
	for moved := true; moved; {
		moved = false
		for _, n := range order {
			at := c.places[n]
			if at == (place{}) || at == found[n].now {
				continue
			}
			if taker := at.dir.entries[at.name]; taker != nil && taker.dir && c.places[taker] == at {
				c.places[n], moved = found[n].now, true
			}
		}
	}
}

// choose is the new place or a durable one; the zero place for a folder that has none. Where only
// the folder that it left has been synced, the rename is durable with that: it is one transaction.
func (c *crash) choose(n *node, l *links) place {
	switch {
	case len(l.durable) == 1 && l.durable[0] == l.now, len(l.durable) == 0 && n.settled, c.keep():
		return l.now
	case len(l.durable) == 0:
		return place{}
	}
	return l.durable[c.rng.IntN(len(l.durable))]
}
