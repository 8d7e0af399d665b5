package inspect

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Compare refuses a file that was changed while it was read, since it is unknown which state was compared. An unchanged file equals itself.
func TestDiffRefusesAFileThatChanges(t *testing.T) {
	t.Parallel()
	const header = `{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`
	path := filepath.Join(t.TempDir(), "a.safetensors")
	content := append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...), "1234"...)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	var both [2]*Contents
	for i := range both {
		s, err := OpenFile(path)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		both[i] = s
	}
	if d, err := Compare(t.Context(), both[0], both[1], Tolerance{}); err != nil || !d.Same {
		t.Fatalf("%+v, %v", d, err)
	}
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(path, later, later); err != nil {
		t.Fatal(err)
	}
	_, err := Compare(t.Context(), both[0], both[1], Tolerance{})
	if err == nil || !strings.Contains(err.Error(), "it was changed while it was read") {
		t.Errorf("ended with %v", err)
	}
}
