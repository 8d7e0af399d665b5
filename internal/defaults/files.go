package defaults

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/vfs"
)

// Places are where the files are looked for.
type Places struct {
	Site string // the site's file; empty: none
	User string // the folder of the user's files; empty: none
}

// UserFolder is where the user's files are, by the variables that lookup finds: ddpbatch below XDG_CONFIG_HOME where that is an
// absolute path (the XDG specification has others passed over), else .config/ddpbatch below HOME; empty without either.
func UserFolder(lookup func(string) (string, bool)) string {
	if config, _ := lookup("XDG_CONFIG_HOME"); filepath.IsAbs(config) {
		return filepath.Join(config, "ddpbatch")
	}
	if home, _ := lookup("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".config", "ddpbatch")
	}
	return ""
}

// File is one of the files of defaults.
type File struct {
	Path string
	Site bool // the site's, and not the user's
}

// Files are the files that are looked for, the later over the earlier.
func (p Places) Files() (files []File) {
	if p.Site != "" {
		files = append(files, File{p.Site, true})
	}
	if p.User != "" {
		files = append(files, File{filepath.Join(p.User, "config.toml"), false})
	}
	return files
}

// Read reads the files that are there.
func (p Places) Read() (*jobfile.Defaults, error) {
	var read []rundir.DefaultsFile
	for _, file := range p.Files() {
		text, err := file.read()
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || !file.Site && errors.Is(err, fs.ErrPermission) {
			continue // HOME may be another user's
		}
		if err != nil {
			return nil, fmt.Errorf("read the defaults: %w", err)
		}
		read = append(read, rundir.DefaultsFile{Name: file.Path, Site: file.Site, Text: text})
	}
	if len(read) == 0 {
		return nil, nil
	}
	return jobfile.ParseDefaults(read...)
}

// maxText is more than any file of keys holds.
const maxText = 1 << 20

func (f File) read() (string, error) {
	text, err := readTrusted(f.Path)
	if err == nil && f.Site {
		if above := vfs.ExposedAbove(f.Path); above != "" {
			err = fmt.Errorf("%s: %w: other users can change %s, and put another file in its place", f.Path, vfs.ErrExposed, above)
		}
	}
	return text, err
}

// readTrusted reads a file that nobody but this user and root can have written.
func readTrusted(path string) (string, error) {
	f, info, err := vfs.OpenRegular(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	switch {
	case !vfs.Trusted(info):
		return "", fmt.Errorf("%s: %w: it belongs to the user with the id %d, and must be this user's or root's", path,
			vfs.ErrExposed, vfs.Owner(info))
	case vfs.OthersWrite(info):
		return "", fmt.Errorf("%s: %w: it has the mode %04o; to end that: chmod go-w '%s'", path, vfs.ErrExposed, info.Mode().Perm(), path)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxText+1))
	if err == nil && len(text) > maxText {
		err = fmt.Errorf("%s is longer than %d bytes", path, maxText)
	}
	return string(text), err
}

// Exposed names the folder above the user's file that other users can change, and where they can put another file in its place; empty:
// there is none, or no file.
func (p Places) Exposed() string {
	for _, file := range p.Files() {
		if _, err := os.Lstat(file.Path); err == nil && !file.Site {
			return vfs.ExposedAbove(file.Path)
		}
	}
	return ""
}
