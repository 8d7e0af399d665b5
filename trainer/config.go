package trainer

// Config is the [train] table of a job. Validate says which values are possible; what
// this version does not build is not among them.
type Config struct {
	Epochs    int             `json:"epochs"`
	BatchSize int             `json:"batch_size"` // rows per rank and step
	Seed      uint64          `json:"seed"`       // of initial weights and the order of rows, by its low 32 bits, and of generated data
	Loss      string          `json:"loss"`       // "cross_entropy" or "mse"
	Model     ModelConfig     `json:"model"`
	Data      DataConfig      `json:"data"`
	Optimizer OptimizerConfig `json:"optimizer"`
	Evaluate  EvaluateConfig  `json:"evaluate"`
}

// ModelConfig describes the layers between the data's inputs and its outputs or classes.
type ModelConfig struct {
	Kind       string `json:"kind"`       // "mlp", or "dense" for one linear layer
	Hidden     []int  `json:"hidden"`     // widths of the hidden layers of an mlp
	Activation string `json:"activation"` // after each hidden layer: "relu" or "tanh"
}

// DataConfig says what is trained on.
type DataConfig struct {
	Kind    string  `json:"kind"`   // "mnist" or "generated"
	Images  string  `json:"images"` // mnist: IDX files, plain or gzip; relative to the job's workdir
	Labels  string  `json:"labels"`
	Train   string  `json:"train"` // "first:past-the-last" rows; empty: all
	Eval    string  `json:"eval"`  // likewise; empty: none
	Shuffle bool    `json:"shuffle"`
	Rows    int     `json:"rows"`    // generated: rows, 4096
	Inputs  int     `json:"inputs"`  // generated: columns of x, 20
	Outputs int     `json:"outputs"` // generated: columns of y, 1
	Noise   float64 `json:"noise"`   // generated: standard deviation added to y
}

// OptimizerConfig says how gradients change parameters.
type OptimizerConfig struct {
	Kind     string  `json:"kind"` // "sgd"
	LR       float64 `json:"lr"`
	Momentum float64 `json:"momentum"`
}

// EvaluateConfig says when the rows of data.eval are looked at.
type EvaluateConfig struct {
	EveryEpochs int `json:"every_epochs"` // and after the last epoch; 0: never
}

// DefaultConfig is what a key left out means.
func DefaultConfig() Config {
	return Config{
		Epochs: 10, BatchSize: 64, Seed: 1, Loss: "cross_entropy",
		Model:     ModelConfig{Kind: "mlp", Hidden: []int{128}, Activation: "relu"},
		Data:      DataConfig{Shuffle: true, Rows: 4096, Inputs: 20, Outputs: 1},
		Optimizer: OptimizerConfig{Kind: "sgd", LR: 0.1},
		Evaluate:  EvaluateConfig{EveryEpochs: 1},
	}
}
