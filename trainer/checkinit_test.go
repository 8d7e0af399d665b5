package trainer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/safetensors"
	"ddpbatch/trainer/data"
)

// CheckInit compares the names and shapes in the header of the file that init names with the model's, before anything runs.
func TestCheckInitComparesNamesAndShapes(t *testing.T) {
	generated, text, images := DefaultConfig(), DefaultConfig(), DefaultConfig()
	generated.Data.Kind, generated.Model.Kind = "generated", "mlp"
	text.Data.Kind, text.Model.Kind = "text", "gpt"
	images.Data.Kind, images.Model.Kind = "cifar10", "cnn"
	digits := mnist(t)
	npy, large := generated, text
	npy.Data.Kind = "npy"
	large.Model.Width = 1 << 14
	dir := t.TempDir()
	inner := []checkpoint.Tensor{checkpoint.Float32Tensor("net.0.weight", []int{1}, []float32{1})}
	if err := safetensors.Write(filepath.Join(dir, "inner"), inner, nil); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "zip"), []byte("PK\x03\x04\x00\x00\x08\x08"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, cfg := range map[string]Config{"generated": generated, "text": text, "images": images, "digits": digits} {
		t.Run(name, func(t *testing.T) {
			spec, ok := cfg.specUnread(func(path string) string { return below(dir, path) })
			if !ok {
				t.Fatal("what its rows are is not known")
			}
			if cfg.Data.Kind == "mnist" || cfg.Data.Kind == "generated" {
				rows, err := openWhole(t.Context(), cfg, dir, nil)
				if err != nil || rows.Spec() != spec {
					t.Fatalf("rows of %+v, error %v; want %+v", rows.Spec(), err, spec)
				}
			}
			cfg.Init = "fits"
			writeInit(t, cfg, spec, filepath.Join(dir, "fits"))
			wantInit(t, cfg, dir, "")
			cfg.Init = "inner"
			wantInit(t, cfg, dir, "inner: the file has net.0.weight, which the model does not have, and lacks ")
			cfg.Init = "zip"
			wantInit(t, cfg, dir, "it looks like a file of torch.save")
			cfg.Init = "nowhere"
			wantInit(t, cfg, dir, "")
		})
	}
	for _, cfg := range []Config{npy, large} {
		cfg.Init = "inner"
		wantInit(t, cfg, dir, "")
	}
	turned := generated
	turned.Model.Kind, turned.Init = "dense", "turned"
	spec := data.Spec{Inputs: generated.Data.Outputs, Outputs: generated.Data.Inputs}
	writeInit(t, turned, spec, filepath.Join(dir, "turned"))
	wantInit(t, turned, dir, "in the file and ")
}

// wantInit checks that CheckInit returns an error with the given words, or no error if words is "".
func wantInit(t *testing.T, cfg Config, dir, words string) {
	t.Helper()
	err := cfg.CheckInit(func(path string) string { return below(dir, path) })
	if (err == nil) != (words == "") || err != nil && (!strings.Contains(err.Error(), words) || !strings.HasPrefix(err.Error(), "init: ")) {
		t.Errorf("error %v, want %q", err, words)
	}
}
