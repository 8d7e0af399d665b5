package vfs

// memTotal is the size that a Mem without a limit shows.
const memTotal = 1 << 50

// SetLimit gives the file system so many bytes of room for the content of files; 0 takes the
// limit away. What already is there stays, even where it is more.
func (m *Mem) SetLimit(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.limit = bytes
}

// Space counts the files that have a name, each with what it holds or what is reserved for it.
func (m *Mem) Space(name string) (Space, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.find("space", name); err != nil {
		return Space{}, err
	}
	total := int64(memTotal)
	if m.limit > 0 {
		total = m.limit
	}
	return Space{Type: "mem", Free: uint64(max(0, total-m.root.used())), Total: uint64(total)}, nil
}

// room is how many bytes still fit beside what is used.
func (m *Mem) room() int64 {
	if m.limit <= 0 {
		return memTotal
	}
	return max(0, m.limit-m.root.used())
}

func (n *node) used() int64 {
	sum := max(int64(len(n.data)), n.reserved)
	for _, child := range n.entries {
		sum += child.used()
	}
	return sum
}
