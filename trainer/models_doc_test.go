package trainer

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/safetensors"
	"ddpbatch/internal/testkit/torch"
	"ddpbatch/trainer/data"
	"ddpbatch/trainer/nn"
)

// modelsDoc returns the text of docs/models.md.
func modelsDoc(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "docs", "models.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// docTensors returns the rows of the table of tensors below a heading of docs/models.md. A row is a name and its shapes.
func docTensors(t *testing.T, heading string) (rows [][]string) {
	t.Helper()
	_, section, found := strings.Cut(modelsDoc(t), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("docs/models.md has no section %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	quoted := regexp.MustCompile("^`([^`]+)`$")
	for line := range strings.Lines(section) {
		var row []string
		for cell := range strings.SplitSeq(line, "|") {
			if words := quoted.FindStringSubmatch(strings.TrimSpace(cell)); words != nil {
				row = append(row, words[1])
			}
		}
		if len(row) > 1 {
			rows = append(rows, row)
		}
	}
	return rows
}

// docCases returns the models that the tables of docs/models.md describe, by heading.
func docCases() map[string]struct {
	model ModelConfig
	spec  data.Spec
} {
	digits := data.Spec{Inputs: 784, Classes: 10, Labels: 1, Image: data.Image{Channels: 1, Height: 28, Width: 28}}
	mlp, cnn, gpt := DefaultConfig().Model, DefaultConfig().Model, DefaultConfig().Model
	mlp.Kind, mlp.Hidden = "mlp", []int{128, 64}
	cnn.Kind, cnn.BatchNorm, cnn.Hidden = "cnn", true, []int{64}
	gpt.Kind = "gpt"
	return map[string]struct {
		model ModelConfig
		spec  data.Spec
	}{
		"mlp and dense": {mlp, digits},
		"cnn":           {cnn, digits},
		"gpt":           {gpt, data.Spec{Inputs: gpt.Context, Classes: 256, Labels: gpt.Context, Symbols: 256}},
	}
}

// docs/models.md lists the names and shapes of all parameters and buffers, and the number of parameters of a gpt.
func TestModelsDocHasTheParameters(t *testing.T) {
	for heading, c := range docCases() {
		model, err := newModel(c.model, c.spec, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		var got, want []string
		parameters := 0
		for _, a := range stateOf(model) {
			want = append(want, a.Name+" "+shapeText(a.Shape))
		}
		for _, p := range model.Params() {
			parameters += len(p.Value)
		}
		for _, row := range docTensors(t, heading) {
			shapes := row[1:]
			if len(shapes) == 2 && substituted(t, shapes[0], c.model) != shapes[1] {
				t.Errorf("%s: %s is %s and %s", heading, row[0], shapes[0], shapes[1])
			}
			name, rest, block := strings.Cut(row[0], ".N.")
			if !block {
				got = append(got, row[0]+" "+shapes[len(shapes)-1])
				continue
			}
			for i := range c.model.Layers {
				got = append(got, fmt.Sprintf("%s.%d.%s %s", name, i, rest, shapes[len(shapes)-1]))
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: docs/models.md has\n%s\nand the model\n%s", heading, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		count := fmt.Sprintf("%d,%03d by default", parameters/1000, parameters%1000)
		if heading == "gpt" && !strings.Contains(modelsDoc(t), count) {
			t.Errorf("docs/models.md does not say %q", count)
		}
	}
}

// shapeText returns a shape as docs/models.md writes it.
func shapeText(shape []int) string { return strings.ReplaceAll(fmt.Sprint(shape), " ", ", ") }

// substituted returns a shape such as [3W, C] with numbers for W and C.
func substituted(t *testing.T, shape string, m ModelConfig) string {
	t.Helper()
	return regexp.MustCompile(`(\d*)([WC])`).ReplaceAllStringFunc(shape, func(term string) string {
		value := map[byte]int{'W': m.Width, 'C': m.Context}[term[len(term)-1]]
		if factor := term[:len(term)-1]; factor != "" {
			n, err := strconv.Atoi(factor)
			if err != nil {
				t.Fatal(err)
			}
			value *= n
		}
		return strconv.Itoa(value)
	})
}

// The Python modules of docs/models.md load exported files, with every name and shape, and give the same outputs as the trainer's models.
func TestModelsDocLoadsIntoPyTorch(t *testing.T) {
	table := data.Spec{Inputs: 6, Outputs: 3}
	image := data.Spec{Inputs: 2 * 9 * 8, Classes: 5, Labels: 1, Image: data.Image{Channels: 2, Height: 9, Width: 8}}
	text := data.Spec{Inputs: 7, Classes: 256, Labels: 7, Symbols: 256}
	cases := []struct {
		python string
		model  ModelConfig
		spec   data.Spec
	}{
		{"mlp(6, [], 3)", ModelConfig{Kind: "dense"}, table},
		{"mlp(6, [7, 5], 3)", ModelConfig{Kind: "mlp", Hidden: []int{7, 5}, Activation: "relu"}, table},
		{"mlp(6, [7, 5], 3, nn.Tanh, 0.2)", ModelConfig{Kind: "mlp", Hidden: []int{7, 5}, Activation: "tanh", Dropout: 0.2}, table},
		{"cnn((2, 9, 8), 5, [4, 6])", ModelConfig{Kind: "cnn", Channels: []int{4, 6}, Kernel: 3}, image},
		{
			"cnn((2, 9, 8), 5, [4], 5, True, [10], 0.1)",
			ModelConfig{Kind: "cnn", Channels: []int{4}, Kernel: 5, BatchNorm: true, Hidden: []int{10}, Dropout: 0.1}, image,
		},
		{"GPT(2, 3, 12, 7, 0.1)", ModelConfig{Kind: "gpt", Layers: 2, Heads: 3, Width: 12, Context: 7, Dropout: 0.1}, text},
	}
	const rows = 3
	dir, random := t.TempDir(), rand.New(rand.NewPCG(1, 2))
	var script strings.Builder
	script.WriteString(modelsPython(t) + "import sys, numpy\n" + `
def run(number, shape, model):
    path = f"{sys.argv[1]}/{number}"
    x = torch.from_numpy(numpy.fromfile(path + ".x", "<f4")).view(shape)
    if isinstance(model, GPT):
        x = x.long()
    loaded = load(path + ".safetensors", shape[1:])
    assert repr(loaded) == repr(model.eval()), repr(loaded)
    loaded(x).detach().numpy().astype("<f4").tofile(path + ".y")
    write(loaded, path + ".again")
`)
	models, outputs := make([]*nn.Sequential, len(cases)), make([][]float32, len(cases))
	for i, c := range cases {
		model, err := newModel(c.model, c.spec, uint64(i), nil)
		if err != nil {
			t.Fatal(err)
		}
		shape := []int{rows, c.spec.Inputs}
		if c.spec.Image.Channels > 0 {
			shape = []int{rows, c.spec.Image.Channels, c.spec.Image.Height, c.spec.Image.Width}
		}
		x := normals(uint64(i), rows*c.spec.Inputs)
		for j := range x {
			if c.spec.Symbols > 0 {
				x[j] = float32(random.IntN(c.spec.Symbols))
			}
		}
		var tensors []checkpoint.Tensor
		for _, a := range stateOf(model) {
			for j := range a.Value { // no longer zeros and ones, and a variance stays positive
				a.Value[j] += random.Float32()
			}
			tensors = append(tensors, checkpoint.Float32Tensor(a.Name, a.Shape, a.Value))
		}
		path := filepath.Join(dir, strconv.Itoa(i))
		torch.WriteFloats(t, path+".x", x)
		if err := safetensors.Write(path+".safetensors", tensors, exportMetadata(c.model)); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&script, "run(%d, %s, %s)\n", i, shapeText(shape), c.python)
		models[i] = model
		outputs[i] = slices.Clone(model.Forward(new(nn.Pass), nn.Matrix{Rows: rows, Cols: c.spec.Inputs, Data: x}).Data)
	}
	script.WriteString(`
try:
    load(f"{sys.argv[1]}/3.safetensors")
    assert False, "a cnn without its images"
except ValueError as e:
    assert "shape of its images" in str(e), e
images = torch.eye(4)[:3].view(3, 1, 2, 2)
for model in nn.Sequential(nn.Linear(4, 4)), nn.Sequential(nn.Flatten(), nn.Linear(4, 4)):
    model[-1].load_state_dict({"weight": 2 * torch.eye(4), "bias": torch.zeros(4)})
    accuracy, loss = evaluate(model, images, torch.tensor([0, 1, 0]))
    assert abs(accuracy - 2 / 3) < 1e-6, accuracy
    assert abs(loss - (math.log(math.exp(2) + 3) - 4 / 3)) < 1e-6, loss
`)
	torch.Run(t, script.String(), dir)
	for i, c := range cases {
		theirs := torch.ReadFloats(t, filepath.Join(dir, strconv.Itoa(i)+".y"))
		largest := slices.Max(outputs[i])
		// Each output is a sum of some hundred products, rounded to 24 bits (6e-8).
		if d := distance(outputs[i], theirs); d > 1e-5*max(1, float64(largest)) {
			t.Errorf("%s: outputs differ by %g, the largest is %g", c.python, d, largest)
		}
		var names []string
		want := map[string][]float32{}
		for _, a := range stateOf(models[i]) {
			names, want[a.Name] = append(names, a.Name), slices.Clone(a.Value)
			clear(a.Value)
		}
		again, _, err := safetensors.ReadFile(filepath.Join(dir, strconv.Itoa(i)+".again"))
		if err == nil {
			err = load(models[i], names, again)
		}
		if err != nil {
			t.Errorf("%s: what Python has written: %v", c.python, err)
		}
		for _, a := range stateOf(models[i]) {
			if !slices.Equal(a.Value, want[a.Name]) {
				t.Errorf("%s: Python has written other values of %s", c.python, a.Name)
			}
		}
	}
}

// modelsPython returns the Python code of docs/models.md.
func modelsPython(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, block := range regexp.MustCompile("(?s)\n```python\n(.*?)```\n").FindAllStringSubmatch(modelsDoc(t), -1) {
		all.WriteString(block[1])
	}
	return all.String()
}

// exportMetadata returns the metadata of an exported file that the Python code of docs/models.md reads. Package checkpoint/inspect writes
// it.
func exportMetadata(m ModelConfig) (all safetensors.Metadata) {
	settings := facts{}
	settings.addModel(m)
	for key, value := range settings {
		if strings.HasPrefix(value, "[") {
			value = strings.ReplaceAll(value, " ", ", ")
		}
		all = append(all, safetensors.Field{Key: key, Value: value})
	}
	return all
}

// The Python code of docs/models.md reads MNIST's files and text as the trainer does.
func TestModelsDocReadsData(t *testing.T) {
	digits := mnist(t)
	dir, symbols := textJob(t)
	for name, c := range map[string]struct {
		python string
		cfg    Config
	}{
		"mnist": {fmt.Sprintf("mnist(%q, %q)", digits.Data.Images, digits.Data.Labels), digits},
		"text":  {fmt.Sprintf("text(%q, %d)", filepath.Join(dir, symbols.Data.Path), symbols.Model.Context), symbols},
	} {
		t.Run(name, func(t *testing.T) {
			c.cfg.Data.Train, c.cfg.Data.Eval = "", ""
			rows, _, err := openData(t.Context(), c.cfg, dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			all := make([]int, rows.Len())
			for i := range all {
				all[i] = i
			}
			var want data.Batch
			want.Fill(rows, all)
			out := t.TempDir()
			torch.Run(t, modelsPython(t)+`
import sys
for name, tensor in zip("xy", `+c.python+`):
    tensor.numpy().astype("<f4").tofile(f"{sys.argv[1]}/{name}")
`, out)
			if d := distance(torch.ReadFloats(t, filepath.Join(out, "x")), want.X); d > 1e-6 {
				t.Errorf("inputs differ by %g", d)
			}
			for i, label := range torch.ReadFloats(t, filepath.Join(out, "y")) {
				if int(label) != want.Labels[i] {
					t.Fatalf("label %d is %v, want %d", i, label, want.Labels[i])
				}
			}
		})
	}
}
