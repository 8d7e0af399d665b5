package optim

import (
	"errors"
	"fmt"
	"math"

	"ddpbatch/internal/redact"
	"ddpbatch/internal/text"
	"ddpbatch/trainer/nn"
)

// Optimizer updates the values of its parameters in place, from their gradients.
type Optimizer interface {
	// Step updates all parameters that have a gradient (nn.Param.HasGrad). The others stay as they
	// are, and so does their state, like those whose .grad is None in PyTorch.
	Step()

	// SetLR sets the learning rate of the following steps.
	SetLR(lr float64)

	// State returns the optimizer's state, in the order of the parameters, or nil if the kind has none.
	// Between steps the slots may be read, and overwritten with what was read from an optimizer of the same Config.
	State() []Slot
}

// Slot is one named array of state.
type Slot struct {
	Name  string    // "momentum_buffer.0.weight": PyTorch's name of the state, then the parameter's
	Shape []int     // empty for a single number
	Value []float32 // the optimizer's own memory: copy from it to save, into it to restore
}

// New returns an optimizer of params, and keeps references to them. A parameter that is listed twice counts
// once. Value and Grad of a parameter may be replaced between steps by others of the same length. An error is
// that of Config.Validate, or says that two parameters have the same name.
func New(params []*nn.Param, cfg Config) (Optimizer, error) {
	if err := cfg.Validate(); err != nil {
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
	return &adam{newAdaptive(params, cfg)}, nil
}

// distinct returns params without repetitions. Names must differ, because state is saved by name.
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

// counter returns a slot of one number, 0. PyTorch also counts steps in a float32.
func counter(name string) Slot {
	return Slot{Name: name, Shape: []int{}, Value: make([]float32, 1)}
}

// Config selects an optimizer. Names and meanings are PyTorch's. Fields that a kind does not use must be zero; Default
// fills in the others.
type Config struct {
	Kind        string  // "sgd" | "adam" | "adamw" | "lamb"
	LR          float64 // above 0
	WeightDecay float64 // sgd, adam: added to the gradient, times the parameter; adamw, lamb: separate from the gradient

	// For sgd.
	Momentum  float64 // in [0, 1); 0: plain gradient descent, without state
	Dampening float64 // in [0, 1]; above 0 needs a momentum
	Nesterov  bool    // needs a momentum and no dampening

	// For the others.
	Beta1, Beta2 float64 // in [0, 1)
	Eps          float64 // above 0
}

// Default returns PyTorch's defaults of a kind, and for LAMB the settings with which its paper trains BERT. PyTorch 1.13 has no
// default for the learning rate of SGD, so it is that of later versions. LAMB's is Adam's.
func Default(kind string) Config {
	cfg := Config{Kind: kind}
	switch kind {
	case "sgd":
		cfg.LR = 1e-2
	case "adam":
		cfg.LR, cfg.Beta1, cfg.Beta2, cfg.Eps = 1e-3, 0.9, 0.999, 1e-8
	case "adamw":
		cfg.LR, cfg.Beta1, cfg.Beta2, cfg.Eps, cfg.WeightDecay = 1e-3, 0.9, 0.999, 1e-8, 1e-2
	case "lamb":
		cfg.LR, cfg.Beta1, cfg.Beta2, cfg.Eps, cfg.WeightDecay = 1e-3, 0.9, 0.999, 1e-6, 1e-2
	}
	return cfg
}

// Validate returns every fault of c, joined. Each begins with the name of the setting in a job file. It checks the float32
// that the optimizer makes of a number.
func (c Config) Validate() error {
	var f faults
	f.unless(float32(c.LR) > 0 && c.LR <= math.MaxFloat32, "lr: is %v, want a number above 0 that float32 holds, from 1e-45 to 3e38", c.LR)
	f.unless(c.WeightDecay >= 0 && c.WeightDecay <= math.MaxFloat32,
		"weight_decay: is %v, want a number from 0 that float32 holds", c.WeightDecay)
	switch c.Kind {
	case "sgd":
		c.validateSGD(&f)
	case "adam", "adamw", "lamb":
		c.validateAdaptive(&f)
	default:
		f.add("kind: %s is not an optimizer, want %s",
			redact.Quoted(c.Kind, redact.Shown), text.Choice([]string{"sgd", "adam", "adamw", "lamb"}))
	}
	return errors.Join(f...)
}

func (c Config) validateSGD(f *faults) {
	f.unless(c.Momentum >= 0 && float32(c.Momentum) < 1, "momentum: is %v, want at least 0 and below 1, up to 0.9999999", c.Momentum)
	if !(c.Dampening >= 0 && c.Dampening <= 1) {
		f.add("dampening: is %v, want a number from 0 to 1", c.Dampening)
	} else {
		f.unless(c.Dampening == 0 || c.Momentum != 0,
			"dampening: is %v without a momentum to dampen: set one, or leave dampening out", c.Dampening)
		f.unless(!c.Nesterov || c.Momentum != 0 && c.Dampening == 0,
			"nesterov: needs a momentum above 0 and no dampening, not momentum %v and dampening %v", c.Momentum, c.Dampening)
	}
	f.unless(c.Beta1 == 0 && c.Beta2 == 0, "betas: sgd has none: leave them out, or choose adam")
	f.unless(c.Eps == 0, "eps: sgd has none: leave it out, or choose adam")
}

func (c Config) validateAdaptive(f *faults) {
	f.unless(c.Beta1 >= 0 && float32(c.Beta1) < 1 && c.Beta2 >= 0 && float32(c.Beta2) < 1,
		"betas: are %v and %v, want both at least 0 and below 1", c.Beta1, c.Beta2)
	f.unless(float32(c.Eps) > 0 && c.Eps <= math.MaxFloat32, "eps: is %v, want a number above 0 that float32 holds, such as 1e-8", c.Eps)
	f.unless(c.Momentum == 0, "momentum: %s has none, its betas take that role: leave it out, or choose sgd", c.Kind)
	f.unless(c.Dampening == 0, "dampening: %s has none: leave it out, or choose sgd", c.Kind)
	f.unless(!c.Nesterov, "nesterov: %s has none: leave it out, or choose sgd", c.Kind)
}

// faults collects the faults of a configuration.
type faults []error

func (f *faults) add(format string, args ...any) { *f = append(*f, fmt.Errorf(format, args...)) }

func (f *faults) unless(right bool, format string, args ...any) {
	if !right {
		f.add(format, args...)
	}
}
