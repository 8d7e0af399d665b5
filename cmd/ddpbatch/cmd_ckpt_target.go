package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// What an export writes.
const (
	exportTensors = "safetensors file"
	exportArray   = ".npy file"
	exportArrays  = "folder of .npy files"
)

// otherEndings are those of files that an export is not, whatever the user hopes.
var otherEndings = []string{".pt", ".pth", ".bin", ".ckpt", ".npz", ".h5", ".onnx"}

// exportKind is what to write, by what was asked for and by the file's ending. It refuses what could not be written there before anything is read.
func exportKind(e *env, file, format, tensor string) (string, error) {
	ending := filepath.Ext(file)
	kind := exportTensors
	switch {
	case format != "" && format != "safetensors" && format != "npy":
		return "", usagef("there is no format %q; it is safetensors or npy", format)
	case format == "npy" && tensor == "":
		return exportArrays, needPlaceOfFolder(e, e.abs(file))
	case format == "npy", format == "" && ending == ".npy":
		kind = exportArray
	case format == "" && slices.Contains(otherEndings, ending):
		return "", usagef("%s would be a safetensors file, and its ending says otherwise; name it %s, or say --format safetensors",
			e.named(file), e.named(strings.TrimSuffix(file, ending)+".safetensors"))
	}
	return kind, needPlaceOfFile(e, file)
}

// needPlaceOfFile refuses a path where no file can be put. An export takes the place of what is there, which must not be a device: as root that could be done.
func needPlaceOfFile(e *env, file string) error {
	path := e.abs(file)
	info, err := os.Stat(path)
	switch {
	case strings.HasSuffix(file, "/"), err == nil && info.IsDir():
		return usagef("export: %s is a folder; name a file in it, or write a .npy file of each tensor there: --format npy", e.named(file))
	case err == nil && !info.Mode().IsRegular():
		return usagef("export: %s is no regular file, and an export takes the place of what is there; name another", e.named(file))
	}
	return needFolderOf(e, "export", path)
}

func needPlaceOfFolder(e *env, path string) error {
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		return usagef("export: %s is no folder, and --format npy without --tensor writes one", e.named(path))
	}
	return needFolderOf(e, "export", path)
}

// needFolderOf refuses a path whose folder is not there: it may be mistyped.
func needFolderOf(e *env, doing, path string) error {
	if isDir(filepath.Dir(path)) {
		return nil
	}
	return &usageError{message: fmt.Sprintf("%s: the folder of %s is not there", doing, e.named(path)), hint: "make it first, or name another"}
}

// makeFolder makes a folder whose parent is there, unless it is there itself.
func makeFolder(path string) (made bool, err error) {
	err = os.Mkdir(path, 0o755)
	if errors.Is(err, fs.ErrExist) && isDir(path) {
		return false, nil
	}
	return err == nil, err
}
