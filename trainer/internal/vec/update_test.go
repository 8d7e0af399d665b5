package vec

import (
	"math"
	"testing"
)

func TestSGDStepIsItsDefinition(t *testing.T) {
	const lr, momentum, rest, decay = 0.1, 0.9, 0.4, 0.01
	rng := newRand(t)
	for _, nesterov := range []bool{false, true} {
		w, g, v := normals(rng, 40), normals(rng, 40), normals(rng, 40)
		got, bare := append([]float32(nil), w...), append([]float32(nil), w...)
		velocity := append([]float32(nil), v...)
		SGD(got, g, velocity, lr, momentum, rest, decay, nesterov)
		SGD(bare, g, nil, lr, 0, 0, decay, false)
		for i := range w {
			grad := float64(g[i]) + decay*float64(w[i])
			wantV := momentum*float64(v[i]) + rest*grad
			step := wantV
			if nesterov {
				step = grad + momentum*wantV
			}
			// The tolerance allows for some ten roundings of numbers below 10.
			if wantW := float64(w[i]) - lr*step; !within(float64(got[i]), wantW, 100*eps) ||
				!within(float64(velocity[i]), wantV, 100*eps) {
				t.Fatalf("nesterov %v: w %v, v %v; want %v, %v", nesterov, got[i], velocity[i], wantW, wantV)
			}
			if want := float64(w[i]) - lr*grad; !within(float64(bare[i]), want, 100*eps) {
				t.Fatalf("without momentum: %v, want %v", bare[i], want)
			}
		}
	}
}

func TestAdamStepIsItsDefinition(t *testing.T) {
	const lr, beta1, beta2, epsilon, decay, step = 0.1, 0.9, 0.999, 1e-8, 0.01, 3
	rng := newRand(t)
	for _, decoupled := range []bool{false, true} {
		s := AdamStep{
			Shrink: 1, Decay: decay, Beta1: beta1, Beta2: beta2, Rest1: 1 - beta1, Rest2: 1 - beta2,
			StepSize: float32(lr / (1 - math.Pow(beta1, step))), Root: float32(math.Sqrt(1 - math.Pow(beta2, step))),
			Eps: epsilon,
		}
		if decoupled {
			s.Shrink, s.Decay = 1-lr*decay, 0
		}
		w, g, m, v := normals(rng, 40), normals(rng, 40), normals(rng, 40), normals(rng, 40)
		for i := range v {
			v[i] *= v[i]
		}
		gotW, gotM, gotV := append([]float32(nil), w...), append([]float32(nil), m...), append([]float32(nil), v...)
		Adam(gotW, g, gotM, gotV, s)
		for i := range w {
			value, grad := float64(w[i]), float64(g[i])
			if decoupled {
				value *= 1 - lr*decay
			} else {
				grad += decay * value
			}
			wantM := beta1*float64(m[i]) + (1-beta1)*grad
			wantV := beta2*float64(v[i]) + (1-beta2)*grad*grad
			denominator := math.Sqrt(wantV)/math.Sqrt(1-math.Pow(beta2, step)) + epsilon
			change := lr / (1 - math.Pow(beta1, step)) * wantM / denominator
			// The tolerance allows for some ten roundings. Dividing m by a number below 1 magnifies its roundings.
			scale := 4 + math.Abs(float64(value)) + 1/denominator
			if !within(float64(gotW[i]), value-change, 20*eps*scale) ||
				!within(float64(gotM[i]), wantM, 20*eps*4) || !within(float64(gotV[i]), wantV, 20*eps*(1+wantV)) {
				t.Fatalf("decoupled %v: w %v, m %v, v %v; want %v, %v, %v", decoupled, gotW[i], gotM[i], gotV[i],
					value-change, wantM, wantV)
			}
		}
	}
}
