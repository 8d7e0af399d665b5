package optim

import (
	"math"
	"strings"
	"testing"

	"ddpbatch/trainer/nn"
)

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
