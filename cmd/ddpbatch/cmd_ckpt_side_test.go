package main

import (
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Of a file that is written to while it is compared, nobody knows which state was; one that is not is the same as itself.
func TestDiffOfFileThatChanges(t *testing.T) {
	t.Parallel()
	const header = `{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`
	path := filepath.Join(t.TempDir(), "a.safetensors")
	content := append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...), "1234"...)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	var sides [2]*side
	for i := range sides {
		s, err := openFileSide(path)
		if err != nil {
			t.Fatal(err)
		}
		defer s.close()
		sides[i] = s
	}
	e := &env{Out: io.Discard, Err: io.Discard}
	if err := runCkptDiff(t.Context(), e, sides[0], sides[1], tolerance{}, false); err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(path, later, later); err != nil {
		t.Fatal(err)
	}
	err := troubled(runCkptDiff(t.Context(), e, sides[0], sides[1], tolerance{}, false))
	if err == nil || !strings.Contains(err.Error(), "it was changed while it was read") || exitCode(err) != exitTrouble {
		t.Errorf("ended with %v, exit code %d", err, exitCode(err))
	}
}
