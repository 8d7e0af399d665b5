package snapshot

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ddpbatch/internal/vfs"
)

// LiveImport is something in a Python environment that leads to the tree instead of its copy.
type LiveImport struct {
	File   string // the file that leads there
	Leads  string // where it leads; absolute, without links
	InTree string // the same, relative to the working directory
}

// maxLink limits how much is read of a file that may lead to the tree.
const maxLink = 64 << 10

// LiveImports looks for packages of a virtual or conda environment that are installed so that Python imports the tree's own files: editable
// installs and .pth files.
func (s *Selection) LiveImports(environment string) []LiveImport {
	var found []LiveImport
	seen := map[string]bool{}
	for _, pattern := range []string{"lib/python3*/site-packages", "lib64/python3*/site-packages"} {
		folders, _ := filepath.Glob(filepath.Join(quotePattern(environment), pattern)) // the pattern is valid
		for _, folder := range folders {
			entries, _ := os.ReadDir(folder) // a directory that cannot be read has no entries
			for _, entry := range entries {
				for _, target := range linksOf(folder, entry.Name()) {
					found = s.appendLive(found, seen, filepath.Join(folder, entry.Name()), target)
				}
			}
		}
	}
	return found
}

// quotePattern quotes a path for Glob.
func quotePattern(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// PathImports finds the directories of PYTHONPATH that lead to the tree.
func (s *Selection) PathImports(list string) []LiveImport {
	var found []LiveImport
	for _, folder := range filepath.SplitList(list) {
		if filepath.IsAbs(folder) {
			found = s.appendLive(found, map[string]bool{}, "PYTHONPATH", folder)
		}
	}
	return found
}

// Has reports whether an absolute path is a file that the copy has too. rel is its path relative to the working directory.
func (s *Selection) Has(file string) (rel string, ok bool) {
	real, err := filepath.EvalSymlinks(file)
	if err != nil {
		return "", false
	}
	name, err := filepath.Rel(s.Root, real)
	if err != nil || !slices.ContainsFunc(s.members, func(m member) bool { return m.path == name && m.mode.IsRegular() }) {
		return "", false
	}
	rel, err = filepath.Rel(s.Dir, name)
	return rel, err == nil
}

func (s *Selection) appendLive(found []LiveImport, seen map[string]bool, file, target string) []LiveImport {
	real, err := filepath.EvalSymlinks(target)
	if err != nil || seen[real] {
		return found
	}
	inTree, err := filepath.Rel(s.Root, real)
	if err != nil || !filepath.IsLocal(inTree) {
		return found
	}
	rel, err := filepath.Rel(s.Dir, inTree)
	if err != nil {
		return found
	}
	seen[real] = true
	return append(found, LiveImport{file, real, rel})
}

// linksOf returns the directories from which Python imports because of a file of site-packages, or of a package's metadata.
func linksOf(folder, name string) []string {
	path := filepath.Join(folder, name)
	switch filepath.Ext(name) {
	case ".dist-info":
		var origin struct {
			URL string `json:"url"`
			Dir struct {
				Editable bool `json:"editable"`
			} `json:"dir_info"`
		}
		if json.Unmarshal(beginning(filepath.Join(path, "direct_url.json")), &origin) != nil || !origin.Dir.Editable {
			return nil
		}
		if u, err := url.Parse(origin.URL); err == nil && u.Scheme == "file" {
			return []string{u.Path}
		}
	case ".egg-link", ".pth":
		var targets []string
		for line := range strings.Lines(string(beginning(path))) {
			line = strings.TrimSpace(line)
			if line == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "import ") || strings.HasPrefix(line, "import\t") {
				continue // direct_url.json says where an import line leads
			}
			if !filepath.IsAbs(line) {
				line = filepath.Join(folder, line)
			}
			if targets = append(targets, line); filepath.Ext(name) == ".egg-link" {
				break // the second line leads from there to the setup script
			}
		}
		return targets
	}
	return nil
}

// beginning returns the beginning of a file, or nil if it cannot be read.
func beginning(path string) []byte {
	f, _, err := vfs.OpenRegular(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	data, _ := io.ReadAll(io.LimitReader(f, maxLink)) // as above
	return data
}

func (l LiveImport) String() string {
	return fmt.Sprintf("%s leads to %s", shown(l.File), shown(l.Leads))
}
