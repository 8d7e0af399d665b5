package optim_test

import (
	"fmt"

	"ddpbatch/trainer/nn"
	"ddpbatch/trainer/optim"
)

// SGD with momentum and a warm-up finds the minimum of (w - 3)^2.
func ExampleNew() {
	w := &nn.Param{Name: "w", Shape: []int{1}, Value: make([]float32, 1), Grad: make([]float32, 1)}
	opt, err := optim.New([]*nn.Param{w}, optim.Config{Kind: "sgd", LR: 0.1, Momentum: 0.5})
	if err != nil {
		fmt.Println(err)
		return
	}
	schedule, err := optim.NewSchedule(optim.ScheduleConfig{Kind: "cosine", WarmupSteps: 5, Steps: 100}, 0.1)
	if err != nil {
		fmt.Println(err)
		return
	}
	for step := range int64(100) {
		w.Grad[0], w.HasGrad = 2*(w.Value[0]-3), true
		opt.SetLR(schedule.LR(step))
		opt.Step()
	}
	fmt.Printf("%.3f\n", w.Value[0])
	// Output: 3.000
}
