package checkpoint

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"

	"ddpbatch/checkpoint/internal/manifest"
)

// errForeign is about a folder that has nothing of a checkpoint but the name.
var errForeign = fmt.Errorf("%w: this folder was not made by ddpbatch", ErrNone)

// foreign says whether a folder with the name of a checkpoint's has nothing to do with one: it is not empty, no file in it has a name
// that only a save, a removal or a pin gives, and its MANIFEST.json, if any, is no checkpoint's. A manifest that is known to be good need not be
// asked about. What cannot be read is not foreign.
func (d *Dir) foreign(folder string) bool {
	files, err := d.list(filepath.Join(d.path, folder))
	return err == nil && d.foreignFiles(folder, files)
}

func (d *Dir) foreignFiles(folder string, files []string) bool {
	ours := func(name string) bool {
		_, tagged := manifest.ParseTag(name)
		_, pin := manifest.ParsePin(name)
		return tagged || pin || name == manifest.DeletingName
	}
	if len(files) == 0 || slices.ContainsFunc(files, ours) {
		return false
	}
	if slices.Contains(files, manifest.Name) && !d.otherManifest(filepath.Join(d.path, folder, manifest.Name)) {
		return false
	}
	d.warnOnce("folder is not a checkpoint, though it has the name of one: it is passed over, and stays as it is", "path", filepath.Join(d.path, folder))
	return true
}

// otherManifest says whether a file does not begin as the manifest of a checkpoint does.
func (d *Dir) otherManifest(path string) bool {
	f, err := d.fs.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return false
	}
	head := make([]byte, min(info.Size(), int64(len(manifest.Start))))
	if n, err := f.ReadAt(head, 0); err != nil && n < len(head) {
		return false
	}
	return !bytes.Equal(head, []byte(manifest.Start))
}
