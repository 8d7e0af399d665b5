package checkpoint

import (
	"path/filepath"
	"strings"
	"testing"

	"ddpbatch/checkpoint/internal/manifest"
	"ddpbatch/internal/testkit/vfstest"
)

// FuzzTicket: no ticket leads a writer out of the checkpoints folder, or into another attempt's.
func FuzzTicket(f *testing.F) {
	f.Add([]byte(`{"folder":"step-000000000007","step":7,"attempt":2,"nonce":10}`))
	f.Add([]byte(`{"folder":"step-000000000007.2-0000000a","step":7,"attempt":2,"nonce":10}`))
	f.Add([]byte(`{"folder":"../x","step":7}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		dr, err := openDir(t, Options{FS: vfstest.New(t), Attempt: 2}).JoinDraft(data)
		if err != nil {
			return
		}
		if filepath.Dir(dr.path()) != testPath || strings.Contains(dr.path(), "broken") || dr.tag.Attempt != 2 {
			t.Errorf("it leads to %s, as %v", dr.path(), dr.tag)
		}
	})
}

// FuzzManifestOfAnotherRank: bytes that a message brought open a checkpoint or give an error; what
// opens can be described, and reading from where no files are is an error.
func FuzzManifestOfAnotherRank(f *testing.F) {
	m := vfstest.New(f)
	d := openDir(f, Options{FS: m})
	save(f, d, testState(1, 0))
	f.Add(vfstest.Read(f, m, d.stepPath(1)+"/"+manifest.Name))
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := openDir(t, Options{FS: vfstest.New(t)}).OpenManifest("step-000000000001", data)
		if err != nil {
			return
		}
		for _, tensor := range c.Tensors() {
			if tensor.Bytes == 0 {
				continue
			}
			if err := c.Read(t.Context(), []Target{{Name: tensor.Name, Data: make([]byte, 1)}}); err == nil {
				t.Error("read from nowhere")
			}
		}
	})
}
