package checkpoint

import "slices"

// keepBases keeps what deltas that stay are made from, and what such may be made from whose
// manifest cannot be read.
func (d *Dir) keepBases(all []*verdict) {
	for _, delta := range all {
		if len(delta.keep) == 0 {
			continue
		}
		if delta.m == nil && (delta.info.State == StateUnreadable || delta.info.State == StateNewer) {
			d.keepPossibleBases(all, delta)
			continue
		}
		for _, v := range all {
			if delta.m != nil && delta.m.Base != nil && v.m != nil && v.name == delta.m.Base.Folder && v.crc == delta.m.Base.CRC {
				v.reason("base of step %d", delta.m.Step)
			}
		}
	}
}

// keepPossibleBases keeps what a checkpoint whose manifest cannot be read may be a delta of. The names
// of its files tell whose it is: another run's has no base of this one's, and that of an attempt none
// of a later one's. Where they cannot be had, it is the newest full one before it.
func (d *Dir) keepPossibleBases(all []*verdict, delta *verdict) {
	attempt, own, known := d.writerOf(delta.files)
	if known && !own {
		return
	}
	for _, v := range slices.Backward(all) {
		if v.m == nil || v.m.Base != nil || v.m.Run != d.opt.Run || v.m.Step > delta.info.Step || known && v.m.Attempt > attempt {
			continue
		}
		if !known && v.info.State == StateBroken {
			continue // nothing can be read by it
		}
		if len(v.keep) == 0 {
			v.perhaps = delta.name
		}
		v.reason("perhaps the base of step %d, which cannot be read", delta.info.Step)
		if !known {
			return
		}
	}
}

// logPerhaps says what fills the disk only because something cannot be read.
func (d *Dir) logPerhaps(verdicts []*verdict) {
	stay, because := 0, ""
	for _, one := range verdicts {
		if one.perhaps != "" {
			stay, because = stay+1, one.perhaps
		}
	}
	if stay > 0 {
		d.log.Warn("old checkpoints stay, since one that cannot be read may be made from them", "path", d.path, "stay", stay, "unread", because)
	}
}
