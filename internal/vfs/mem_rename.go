package vfs

import "syscall"

// Rename moves a file or a whole folder. As os.Rename, and unlike rename(2), it does not replace
// an empty folder.
func (m *Mem) Rename(oldName, newName string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	from, oldBase, err := m.parent("rename", oldName)
	if err != nil {
		return err
	}
	to, newBase, err := m.parent("rename", newName)
	if err != nil {
		return err
	}
	n, target := from.entries[oldBase], to.entries[newBase]
	switch {
	case n == nil:
		return linkError(oldName, newName, syscall.ENOENT)
	case n == target && !n.dir:
		return nil
	case target != nil && target.dir:
		return linkError(oldName, newName, syscall.EEXIST)
	case target != nil && n.dir:
		return linkError(oldName, newName, syscall.ENOTDIR)
	case n.dir && n.holds(to):
		return linkError(oldName, newName, syscall.EINVAL)
	}
	if target != nil {
		target.gone = true
	}
	delete(from.entries, oldBase)
	to.entries[newBase] = n
	return nil
}

// holds says whether a folder is n itself or lies below it.
func (n *node) holds(dir *node) bool {
	if n == dir {
		return true
	}
	for _, child := range n.entries {
		if child.dir && child.holds(dir) {
			return true
		}
	}
	return false
}
