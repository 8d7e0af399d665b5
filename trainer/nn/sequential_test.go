package nn

import (
	"slices"
	"strings"
	"testing"
)

func TestSequentialNamesParametersAsPyTorchDoes(t *testing.T) {
	r := source()
	model := NewSequential(NewLinear(4, 8, r), NewReLU(),
		NewSequential(NewLinear(8, 8, r), NewTanh()), NewLinear(8, 3, r))
	var names []string
	for _, p := range model.Params() {
		names = append(names, p.Name)
	}
	want := []string{"0.weight", "0.bias", "2.0.weight", "2.0.bias", "3.weight", "3.bias"}
	if !slices.Equal(names, want) {
		t.Errorf("names are %q, want %q", names, want)
	}
	if shape := model.Params()[0].Shape; !slices.Equal(shape, []int{8, 4}) {
		t.Errorf("the weight from 4 to 8 features has shape %v, want [8 4]", shape)
	}
}

// A shared parameter or buffer is listed once, named by its first use, as in PyTorch's named_parameters.
func TestSharedParametersAreNamedOnce(t *testing.T) {
	r := source()
	first, norm := NewLinear(3, 3, r), NewBatchNorm1d(3, nil)
	again := &shares{NewReLU(), []*Param{first.weight, newParam("own", 1), first.weight}, norm.Buffers()}
	model := NewNamed(Child{"body", NewSequential(first, norm, again)}, Child{"head", &shares{NewReLU(), []*Param{first.weight}, nil}})
	var params, buffers []string
	for _, p := range model.Params() {
		params = append(params, p.Name)
	}
	for _, b := range model.Buffers() {
		buffers = append(buffers, b.Name)
	}
	const weight = "body.0.weight"
	if want := []string{weight, "body.0.bias", "body.1.weight", "body.1.bias", weight, "body.2.own", weight,
		weight}; !slices.Equal(params, want) {
		t.Errorf("names are %q, want %q", params, want)
	}
	if len(buffers) == 0 || !slices.Equal(buffers[:len(buffers)/2], buffers[len(buffers)/2:]) ||
		!strings.HasPrefix(buffers[0], "body.1.running") {
		t.Errorf("names of buffers are %q, want those of body.1, twice", buffers)
	}
}

// shares is a module that has the parameters and buffers of other modules.
type shares struct {
	*ReLU
	params  []*Param
	buffers []*Buffer
}

func (s *shares) Params() []*Param { return s.params }

func (s *shares) Buffers() []*Buffer { return s.buffers }

func TestEmptySequentialPassesOn(t *testing.T) {
	r := source()
	var pass Pass
	x, dy := randomMatrix(r, 2, 3), randomMatrix(r, 2, 3)
	model := NewSequential()
	if y := model.Forward(&pass, x); !slices.Equal(y.Data, x.Data) {
		t.Errorf("y is %v, want x", y)
	}
	if dx := model.Backward(&pass, dy, true); !slices.Equal(dx.Data, dy.Data) {
		t.Errorf("dx is %v, want dy", dx)
	}
	if dx := model.Backward(&pass, dy, false); dx.Data != nil || dx.Rows != 0 || dx.Cols != 0 {
		t.Errorf("dx that nobody wants is %v", dx)
	}
}
