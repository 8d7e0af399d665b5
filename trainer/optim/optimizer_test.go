package optim

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"ddpbatch/trainer/nn"
)

// everyKind returns configs of each kind of optimizer, with all the state that it may keep.
func everyKind() []Config {
	adam, adamw, lamb := Default("adam"), Default("adamw"), Default("lamb")
	adam.WeightDecay = 0.1
	return []Config{
		{Kind: "sgd", LR: 0.1, WeightDecay: 0.1},
		{Kind: "sgd", LR: 0.1, Momentum: 0.9, WeightDecay: 0.1, Nesterov: true},
		{Kind: "sgd", LR: 0.1, Momentum: 0.9, Dampening: 0.3},
		adam, adamw, lamb,
	}
}

func clonedState(opt Optimizer) [][]float32 {
	var state [][]float32
	for _, slot := range opt.State() {
		state = append(state, slices.Clone(slot.Value))
	}
	return state
}

func values(params []*nn.Param) [][]float32 {
	var list [][]float32
	for _, p := range params {
		list = append(list, slices.Clone(p.Value))
	}
	return list
}

func equal(a, b [][]float32) bool { return slices.EqualFunc(a, b, slices.Equal) }

// A run that is stopped after any step and restored into new memory continues with the same bits.
func TestStateRestoresTheOptimizer(t *testing.T) {
	s := randomSteps(12)
	n := len(s.LRs)
	for _, cfg := range everyKind() {
		params := s.params()
		opt := mustNew(t, cfg, params...)
		for step := range n {
			s.step(opt, params, step)
		}
		wantValues, wantState := values(params), clonedState(opt)

		for stop := range n {
			params := s.params()
			opt := mustNew(t, cfg, params...)
			for step := range n {
				if step == stop {
					saved, state := values(params), clonedState(opt)
					params = s.params()
					opt = mustNew(t, cfg, params...)
					for i, p := range params {
						copy(p.Value, saved[i])
					}
					for i, slot := range opt.State() {
						copy(slot.Value, state[i])
					}
				}
				s.step(opt, params, step)
			}
			if !equal(values(params), wantValues) || !equal(clonedState(opt), wantState) {
				t.Errorf("%+v: stopped before step %d: other bits than never stopped", cfg, stop)
			}
		}
	}
}

// Several optimizers, each of a part of the parameters, do together what one optimizer of all parameters does. ZeRO relies on this.
func TestPartsMakeTheWhole(t *testing.T) {
	s := randomSteps(12)
	for _, cfg := range everyKind() {
		whole, parts := s.params(), s.params()
		all := mustNew(t, cfg, whole...)
		even, odd := mustNew(t, cfg, parts[0], parts[2], parts[4]), mustNew(t, cfg, parts[3], parts[1])
		for step := range s.LRs {
			s.step(all, whole, step)
			s.step(even, parts, step)
			odd.SetLR(s.LRs[step])
			odd.Step()
		}
		if !equal(values(whole), values(parts)) {
			t.Errorf("%+v: parts have other bits than the whole", cfg)
		}
		if len(even.State())+len(odd.State()) != len(all.State()) {
			t.Errorf("%+v: parts have %d and %d slots, the whole %d", cfg, len(even.State()), len(odd.State()), len(all.State()))
		}
	}
}

func TestWithoutGradientNothingMoves(t *testing.T) {
	for _, cfg := range everyKind() {
		p := param("w", 1, 2)
		opt := mustNew(t, cfg, p)
		p.Grad[0], p.Grad[1] = 1, 2
		opt.Step()
		before, state := slices.Clone(p.Value), clonedState(opt)
		p.HasGrad = false // Grad has old values in it, which must not count
		opt.Step()
		if !slices.Equal(p.Value, before) || !equal(clonedState(opt), state) {
			t.Errorf("%+v: a parameter without gradient moved from %v to %v, its state from %v to %v",
				cfg, before, p.Value, state, clonedState(opt))
		}
	}
}

func TestListedTwiceCountsOnce(t *testing.T) {
	for _, cfg := range everyKind() {
		one, two := param("w", 1, 2), param("w", 1, 2)
		for _, p := range []*nn.Param{one, two} {
			p.Grad[0], p.Grad[1] = 1, 2
		}
		once, twice := mustNew(t, cfg, one), mustNew(t, cfg, two, param("b", 1), two)
		once.Step()
		twice.Step()
		if !slices.Equal(one.Value, two.Value) {
			t.Errorf("%+v: listed twice %v, once %v", cfg, two.Value, one.Value)
		}
	}
}

func TestNamesMustDiffer(t *testing.T) {
	_, err := New([]*nn.Param{param("w", 1), param("w", 1)}, Default("sgd"))
	if err == nil || !strings.Contains(err.Error(), `"w"`) {
		t.Errorf("error %v, want one that names w", err)
	}
}

// The slices of a parameter may be replaced after New, since gradients move into buckets.
func TestSlicesMayBeReplaced(t *testing.T) {
	for _, cfg := range everyKind() {
		p, q := param("w", 1, 2), param("w", 1, 2)
		a, b := mustNew(t, cfg, p), mustNew(t, cfg, q)
		q.Value, q.Grad = slices.Clone(q.Value), make([]float32, 2)
		for _, p := range []*nn.Param{p, q} {
			p.Grad[0], p.Grad[1] = 1, 2
		}
		a.Step()
		b.Step()
		if !slices.Equal(p.Value, q.Value) {
			t.Errorf("%+v: in other memory %v, want %v", cfg, q.Value, p.Value)
		}
	}
}

func TestSlotsHavePyTorchsNames(t *testing.T) {
	p := &nn.Param{Name: "0.weight", Shape: []int{2, 3}, Value: make([]float32, 6), Grad: make([]float32, 6)}
	adam := []string{"step.0.weight []", "exp_avg.0.weight [2 3]", "exp_avg_sq.0.weight [2 3]"}
	for _, c := range []struct {
		cfg  Config
		want []string
	}{
		{Config{Kind: "sgd", LR: 1, Momentum: 0.9}, []string{"momentum_buffer.0.weight [2 3]"}},
		{Config{Kind: "sgd", LR: 1, Momentum: 0.9, Dampening: 0.1},
			[]string{"momentum_buffer.0.weight [2 3]", "momentum_begun.0.weight []"}},
		{Default("adam"), adam}, {Default("adamw"), adam}, {Default("lamb"), adam},
	} {
		var got []string
		for _, slot := range mustNew(t, c.cfg, p).State() {
			got = append(got, fmt.Sprint(slot.Name, " ", slot.Shape))
			if len(slot.Value) != sizeOf(slot.Shape) {
				t.Errorf("%s has %d values", slot.Name, len(slot.Value))
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%+v: slots %q, want %q", c.cfg, got, c.want)
		}
	}
}

func TestBadSettingsNameTheirKey(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	set := func(kind string, change func(c *Config)) Config {
		c := Default(kind)
		change(&c)
		return c
	}
	for _, c := range []struct {
		key string
		cfg Config
	}{
		{"kind", Config{LR: 1}},
		{"kind", Config{Kind: "SGD", LR: 1}},
		{"lr", set("sgd", func(c *Config) { c.LR = 0 })},
		{"lr", set("adam", func(c *Config) { c.LR = -1 })},
		{"lr", set("adamw", func(c *Config) { c.LR = nan })},
		{"lr", set("lamb", func(c *Config) { c.LR = inf })},
		{"lr", set("sgd", func(c *Config) { c.LR = 1e39 })},
		{"weight_decay", set("sgd", func(c *Config) { c.WeightDecay = -1 })},
		{"weight_decay", set("adam", func(c *Config) { c.WeightDecay = nan })},
		{"weight_decay", set("adamw", func(c *Config) { c.WeightDecay = inf })},
		{"momentum", set("sgd", func(c *Config) { c.Momentum = 1 })},
		{"momentum", set("sgd", func(c *Config) { c.Momentum = -0.1 })},
		{"momentum", set("sgd", func(c *Config) { c.Momentum = nan })},
		{"momentum", set("adam", func(c *Config) { c.Momentum = 0.9 })},
		{"dampening", set("sgd", func(c *Config) { c.Momentum, c.Dampening = 0.9, 1.1 })},
		{"dampening", set("sgd", func(c *Config) { c.Momentum, c.Dampening = 0.9, nan })},
		{"dampening", set("sgd", func(c *Config) { c.Dampening = 0.1 })},
		{"dampening", set("adamw", func(c *Config) { c.Dampening = 0.1 })},
		{"nesterov", set("sgd", func(c *Config) { c.Nesterov = true })},
		{"nesterov", set("sgd", func(c *Config) { c.Nesterov, c.Momentum, c.Dampening = true, 0.9, 0.1 })},
		{"nesterov", set("lamb", func(c *Config) { c.Nesterov = true })},
		{"betas", set("adam", func(c *Config) { c.Beta1 = 1 })},
		{"betas", set("adamw", func(c *Config) { c.Beta2 = 1 })},
		{"betas", set("lamb", func(c *Config) { c.Beta1 = -0.1 })},
		{"betas", set("lamb", func(c *Config) { c.Beta2 = nan })},
		{"betas", set("sgd", func(c *Config) { c.Beta1 = 0.9 })},
		{"eps", set("adam", func(c *Config) { c.Eps = 0 })},
		{"eps", set("adam", func(c *Config) { c.Eps = 1e-60 })}, // 0 in float32
		{"eps", set("adamw", func(c *Config) { c.Eps = nan })},
		{"eps", set("adamw", func(c *Config) { c.Eps = inf })},
		{"eps", set("sgd", func(c *Config) { c.Eps = 1e-8 })},
	} {
		if _, err := New(nil, c.cfg); err == nil || !strings.HasPrefix(err.Error(), c.key+": ") {
			t.Errorf("%+v: error %v, want one that begins with %q", c.cfg, err, c.key)
		}
	}
}

func TestDefaultsAreValid(t *testing.T) {
	for _, kind := range []string{"sgd", "adam", "adamw", "lamb"} {
		if _, err := New([]*nn.Param{param("w", 1)}, Default(kind)); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func TestStepsAllocateNothing(t *testing.T) {
	scaler := NewLossScaler()
	schedule := mustSchedule(t, ScheduleConfig{Kind: "one_cycle", Steps: 1000, WarmupSteps: 3}, 0.1)
	for _, cfg := range everyKind() {
		p, q := param("w", make([]float32, 100)...), param("b", make([]float32, 7)...)
		params := []*nn.Param{p, q}
		opt := mustNew(t, cfg, params...)
		step := int64(0)
		if n := testing.AllocsPerRun(100, func() {
			for _, p := range params {
				for i := range p.Grad {
					p.Grad[i] = 1
				}
			}
			scaler.Update(scaler.Unscale(params))
			ClipGradNorm(params, 0.1, math.Sqrt(SquaredNorm(params)))
			opt.SetLR(schedule.LR(step))
			opt.Step()
			_ = opt.State()
			step++
		}); n != 0 {
			t.Errorf("%+v: %v allocations a step", cfg, n)
		}
	}
}

func BenchmarkStep(b *testing.B) {
	for _, c := range []struct {
		name string
		cfg  Config
	}{
		{"sgd", Config{Kind: "sgd", LR: 0.1}},
		{"sgd-momentum", Config{Kind: "sgd", LR: 0.1, Momentum: 0.9}},
		{"adam", Default("adam")},
		{"adamw", Default("adamw")},
		{"lamb", Default("lamb")},
	} {
		b.Run(c.name, func(b *testing.B) {
			p := param("w", make([]float32, 784*512)...)
			for i := range p.Grad {
				p.Value[i], p.Grad[i] = float32(i%17)/16, float32(i%13)/12
			}
			opt := mustNew(b, c.cfg, p)
			b.SetBytes(int64(4 * len(p.Value)))
			b.ReportAllocs()
			for b.Loop() {
				opt.Step()
			}
		})
	}
}
