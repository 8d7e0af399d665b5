package optim

import (
	"fmt"

	"ddpbatch/trainer/nn"
)

// Optimizer changes the values of its parameters in place, from their gradients.
type Optimizer interface {
	// Step changes all parameters that have a gradient (nn.Param.HasGrad) by one step. The others stay as they
	// are, and so does their state, as PyTorch's where .grad is None.
	Step()

	// SetLR sets the learning rate of the steps to come.
	SetLR(lr float64)

	// State returns the optimizer's state, in the order of the parameters; none where the kind keeps nothing.
	// Between steps the slots may be read, and overwritten with what was read from an optimizer of equal Config.
	State() []Slot
}

// Slot is one named array of state.
type Slot struct {
	Name  string    // "momentum_buffer.0.weight": PyTorch's name of the state, then the parameter's
	Shape []int     // empty for a single number
	Value []float32 // the owner's own memory: copy from it to save, into it to restore
}

// New returns an optimizer of params, which it refers to from then on. A parameter that is listed twice counts
// once. Value and Grad of a parameter may be replaced between steps by others of the same length. An error begins
// with the name that the setting has in a job file.
func New(params []*nn.Param, cfg Config) (Optimizer, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	params, err := distinct(params)
	if err != nil {
		return nil, err
	}
	switch cfg.Kind {
	case "sgd":
		return newSGD(params, cfg), nil
	case "lamb":
		return newLAMB(params, cfg), nil
	}
	return newAdam(params, cfg), nil
}

// distinct returns params without repetitions. Names must differ, as state is saved by name.
func distinct(params []*nn.Param) ([]*nn.Param, error) {
	named := map[string]*nn.Param{}
	var list []*nn.Param
	for _, p := range params {
		switch named[p.Name] {
		case nil:
			named[p.Name] = p
			list = append(list, p)
		case p:
		default:
			return nil, fmt.Errorf("optimizer: two parameters are named %q: give each its own name", p.Name)
		}
	}
	return list, nil
}

// slotLike returns a slot of zeros for p, in p's shape.
func slotLike(name string, p *nn.Param) Slot {
	return Slot{Name: name + "." + p.Name, Shape: p.Shape, Value: make([]float32, len(p.Value))}
}

// counter returns a slot of one number, 0. PyTorch too counts steps in a float32.
func counter(name string) Slot {
	return Slot{Name: name, Shape: []int{}, Value: make([]float32, 1)}
}
