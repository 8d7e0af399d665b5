package output

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// LogDir is the folder of logs of one agent that torchrun's --log-dir asks for:
//
//	<dir>/<run id>_<random>/attempt_<round>/<local rank>/{stdout.log,stderr.log,error.json}
//	<dir>/<run id>_<random>/attempt_<round>/filtered_{stdout,stderr}.log
//
// Rounds are added to it. Unlike torchrun, ddpbatch never deletes a round. Its methods are safe for concurrent use.
type LogDir struct{ path string }

// NewLogDir makes a new folder for the run in dir, and dir itself if it does not exist. For /dev/null, which is torchrun's way to
// ask for no files, all paths of the LogDir are "". If dir is "", the LogDir is nil.
func NewLogDir(dir, runID string) (*LogDir, error) {
	switch dir {
	case "":
		return nil, nil
	case os.DevNull:
		return &LogDir{}, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of logs: %w", err)
	}
	path, err := os.MkdirTemp(dir, folderName(runID)+"_*")
	if err != nil {
		return nil, fmt.Errorf("make the run's folder of logs: %w", err)
	}
	return &LogDir{path}, nil
}

// HasFiles reports whether there is a folder.
func (d *LogDir) HasFiles() bool { return d.path != "" }

// Worker makes the folder of one worker in one round, and returns the paths of its streams' files and of its error file
// (TORCHELASTIC_ERROR_FILE).
func (d *LogDir) Worker(round, local int) (streams Paths, errorFile string, err error) {
	if d.path == "" {
		return Paths{}, "", nil
	}
	dir := filepath.Join(d.round(round), strconv.Itoa(local))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Paths{}, "", fmt.Errorf("make the folder of logs of local rank %d: %w", local, err)
	}
	streams = Paths{Out: filepath.Join(dir, "stdout.log"), Err: filepath.Join(dir, "stderr.log")}
	return streams, filepath.Join(dir, "error.json"), nil
}

// Filtered makes the folder of one round, and returns the paths of its files of all ranks.
func (d *LogDir) Filtered(round int) (Paths, error) {
	if d.path == "" {
		return Paths{}, nil
	}
	if err := os.MkdirAll(d.round(round), 0o700); err != nil {
		return Paths{}, fmt.Errorf("make the folder of logs of a round: %w", err)
	}
	return Paths{
		Out: filepath.Join(d.round(round), "filtered_stdout.log"),
		Err: filepath.Join(d.round(round), "filtered_stderr.log"),
	}, nil
}

func (d *LogDir) round(n int) string { return filepath.Join(d.path, "attempt_"+strconv.Itoa(n)) }

// folderName makes a run's id, which may be any text, the beginning of a folder's name.
func folderName(id string) string {
	const longest = 128 // bytes of the 255 that a name may have (NAME_MAX)
	id = strings.ToValidUTF8(id[:min(len(id), longest)], "_")
	id = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == filepath.Separator || r == '*' { // MkdirTemp replaces a *
			return '_'
		}
		return r
	}, id)
	if strings.HasPrefix(id, ".") {
		id = "_" + id // so that ls shows it
	}
	if id == "" {
		id = "none" // torchrun's default for --rdzv-id
	}
	return id
}
