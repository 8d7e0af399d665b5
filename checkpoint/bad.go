package checkpoint

import "ddpbatch/checkpoint/internal/manifest"

// saveID tells a save from a later one that has taken the name of its folder.
type saveID struct {
	folder string
	crc    manifest.Checksum // of the manifest's bytes
}

func (c *Checkpoint) id() saveID { return saveID{c.folder, manifest.CRC(c.data)} }

func (e *entry) id() saveID { return saveID{e.name, e.crc} }

// markBad takes note that a save was found corrupt by a read.
func (d *Dir) markBad(id saveID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bad[id] = d.bad[id]
}

// markRejected takes note that a save was found corrupt again, and why.
func (d *Dir) markRejected(id saveID, why error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bad[id] = why
}

// markSound takes back what was noted of a save.
func (d *Dir) markSound(id saveID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.bad, id)
}

func (d *Dir) isBad(id saveID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, bad := d.bad[id]
	return bad
}

// rejection is why a save was rejected; nil where it was not.
func (d *Dir) rejection(id saveID) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.bad[id]
}
