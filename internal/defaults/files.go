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

// Places says where to look for the files.
type Places struct {
	Site string // the site's file; empty: none
	User string // the folder of the user's files; empty: none
}

// UserFolder returns the folder of the user's files, from the variables that lookup finds: ddpbatch below XDG_CONFIG_HOME if that is an
// absolute path (the XDG specification says to ignore others), or else .config/ddpbatch below HOME. It is empty without either.
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
	Site bool // the site's file, not the user's
}

// Files returns the files to look for. A later file overrides an earlier one.
func (p Places) Files() (files []File) {
	if p.Site != "" {
		files = append(files, File{p.Site, true})
	}
	if p.User != "" {
		files = append(files, File{filepath.Join(p.User, "config.toml"), false})
	}
	return files
}

// Read reads the files that exist. It returns nil if there are none.
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

// maxText bounds the length of a file in bytes, far above that of any real one.
const maxText = 1 << 20

func (f File) read() (string, error) {
	text, err := readTrusted(f.Path)
	if err == nil && f.Site {
		if above := vfs.ExposedAbove(f.Path); above != "" {
			err = fmt.Errorf("%s: %w: other users can change %s, and so replace the file", f.Path, vfs.ErrExposed, above)
		}
	}
	return text, err
}

// readTrusted reads a file, and refuses it if users other than this one and root can have written it.
func readTrusted(path string) (string, error) {
	f, info, err := vfs.OpenRegular(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	switch {
	case !vfs.Trusted(info):
		return "", fmt.Errorf("%s: %w: it belongs to the user with the id %d, but must belong to you or root", path,
			vfs.ErrExposed, vfs.Owner(info))
	case vfs.OthersWrite(info):
		return "", fmt.Errorf("%s: %w: its mode is %04o; to correct it: chmod go-w '%s'", path, vfs.ErrExposed, info.Mode().Perm(), path)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxText+1))
	if err == nil && len(text) > maxText {
		err = fmt.Errorf("%s is longer than %d bytes", path, maxText)
	}
	return string(text), err
}

// Exposed returns the folder above the user's file that other users can change, so that they can replace the file. It is empty if there is
// no such folder, or no file.
func (p Places) Exposed() string {
	for _, file := range p.Files() {
		if _, err := os.Lstat(file.Path); err == nil && !file.Site {
			return vfs.ExposedAbove(file.Path)
		}
	}
	return ""
}
