package trainer

// Config is the [train] table of a job. Validate checks the values.
type Config struct {
	Epochs     int `json:"epochs"`
	MaxSteps   int `json:"max_steps"`  // ends the run after so many steps, if the epochs have more; 0: no limit
	BatchSize  int `json:"batch_size"` // rows per rank and backward pass; with a pipeline, per pipeline
	Accumulate int `json:"accumulate"` // backward passes per step
	// seed of initial weights, the order of rows and dropout (its low 32 bits), and of generated data
	Seed         uint64          `json:"seed"`
	Mode         string          `json:"mode"`          // "ddp": one replica a rank; "dp": several replicas in each rank's process
	Replicas     int             `json:"replicas"`      // mode "dp": replicas in each rank; 0: one for each of its cores
	Pipeline     int             `json:"pipeline"`      // number of ranks that a model's layers are split over; 1: not split
	MicroBatches int             `json:"micro_batches"` // number of parts that a pipeline cuts a batch into; 0: as many as Pipeline
	Precision    string          `json:"precision"`     // of matrix products: "float32", "bfloat16" or "float16"
	BLAS         string          `json:"blas"`          // "auto", "go" or the path of a library
	Loss         string          `json:"loss"`          // "cross_entropy" or "mse"
	Init         string          `json:"init"`          // a safetensors file with the initial parameters; empty: random ones
	ClipNorm     float64         `json:"clip_norm"`     // the largest norm of a gradient; 0: no limit
	Model        ModelConfig     `json:"model"`
	Data         DataConfig      `json:"data"`
	Optimizer    OptimizerConfig `json:"optimizer"`
	Schedule     ScheduleConfig  `json:"schedule"`
	DDP          DDPConfig       `json:"ddp"`
	Evaluate     EvaluateConfig  `json:"evaluate"`
	// TensorBoard asks for event files beside the metrics.
	TensorBoard bool `json:"tensorboard"`
	// Export is a safetensors file for the final model; empty: none. The caller of Run writes it, from the last checkpoint.
	Export string `json:"export"`
}

// ModelConfig describes the layers between the data's inputs and its outputs or classes.
type ModelConfig struct {
	Kind string `json:"kind"` // "dense" (one linear layer), "mlp", "cnn" or "gpt"
	// widths of the hidden layers of an mlp, or between a cnn's convolutions and its outputs; null: 128, or none
	Hidden     []int   `json:"hidden"`
	Activation string  `json:"activation"` // of an mlp's hidden layers: "relu" or "tanh"
	Dropout    float64 `json:"dropout"`    // share of the activations that training drops
	Channels   []int   `json:"channels"`   // of a cnn: of each convolution, which ReLU and a 2 x 2 max-pool follow
	Kernel     int     `json:"kernel"`     // of a cnn: width and height, odd
	BatchNorm  bool    `json:"batch_norm"` // of a cnn: after each convolution
	Layers     int     `json:"layers"`     // of a gpt: blocks
	Heads      int     `json:"heads"`
	Width      int     `json:"width"`
	Context    int     `json:"context"` // number of symbols that it sees
}

// hidden returns the widths of the hidden layers.
func (m ModelConfig) hidden() []int {
	if m.Hidden == nil && m.Kind == "mlp" {
		return []int{128}
	}
	return m.Hidden
}

// DataConfig describes the data to train on. Paths are relative to the job's workdir.
type DataConfig struct {
	Kind       string   `json:"kind"`       // "mnist", "cifar10", "csv", "npy", "text" or "generated"
	Images     string   `json:"images"`     // mnist: IDX files, plain or gzip
	Labels     string   `json:"labels"`     //
	Files      []string `json:"files"`      // cifar10: binary batches
	Path       string   `json:"path"`       // csv: the file; text: a file or a folder
	Target     []string `json:"target"`     // csv: columns to predict, by name or number from 0; empty: the last
	Header     string   `json:"header"`     // csv: "auto", "yes" or "no"
	Delimiter  string   `json:"delimiter"`  // csv
	InputFile  string   `json:"input_file"` // npy: data.inputs and data.targets
	TargetFile string   `json:"target_file"`
	Train      string   `json:"train"` // rows "FIRST:END", END not included; empty: all
	Eval       string   `json:"eval"`  // rows to evaluate on, in the same form; empty: none
	Shuffle    bool     `json:"shuffle"`
	Remainder  string   `json:"remainder"` // rows that do not divide evenly: "pad" (the first are repeated), "drop" or "uneven"
	Cache      string   `json:"cache"`     // folder for data that one rank of a node prepares for all; empty: none
	Rows       int      `json:"rows"`      // generated: rows, 4096
	Inputs     int      `json:"inputs"`    // generated: columns of x, 20
	Outputs    int      `json:"outputs"`   // generated: columns of y, 1
	Noise      float64  `json:"noise"`     // generated: standard deviation added to y
}

// OptimizerConfig configures the optimizer. Names and meanings are PyTorch's.
type OptimizerConfig struct {
	Kind        string     `json:"kind"` // "sgd", "adam", "adamw" or "lamb"
	LR          float64    `json:"lr"`
	Momentum    float64    `json:"momentum"`  // sgd
	Dampening   float64    `json:"dampening"` // sgd
	Nesterov    bool       `json:"nesterov"`  // sgd
	WeightDecay float64    `json:"weight_decay"`
	Betas       [2]float64 `json:"betas"` // adam, adamw, lamb
	Eps         float64    `json:"eps"`   // adam, adamw, lamb
	Zero        bool       `json:"zero"`  // ZeRO-1: each rank keeps only the state of a part of the parameters
}

// ScheduleConfig configures how the learning rate changes from step to step.
type ScheduleConfig struct {
	Kind        string  `json:"kind"` // "constant", "step", "cosine", "one_cycle" or "linear"
	WarmupSteps int     `json:"warmup_steps"`
	StepSize    int     `json:"step_size"` // step: steps between decays
	Gamma       float64 `json:"gamma"`     // step: factor of each decay
	MinLR       float64 `json:"min_lr"`    // cosine, linear: at the end
}

// DDPConfig configures how ranks keep their replicas equal.
type DDPConfig struct {
	BucketMB        float64 `json:"bucket_mb"`         // size of a bucket of gradients, in MiB
	Compress        string  `json:"compress"`          // "none", "float16", "bfloat16", "int8" or "powersgd"
	Rank            int     `json:"rank"`              // powersgd: rank of the approximation
	StartStep       int     `json:"start_step"`        // powersgd: step before which gradients are not compressed
	Overlap         bool    `json:"overlap"`           // average while backward goes on
	FindUnused      bool    `json:"find_unused"`       // some parameters may get no gradient
	SyncBatchNorm   bool    `json:"sync_batch_norm"`   // statistics over the rows of all ranks
	AverageEvery    int     `json:"average_every"`     // local SGD: ranks step by themselves, and average every so many steps; 0: never
	AverageWarmup   int     `json:"average_warmup"`    // local SGD: steps with averaged gradients before it begins
	CheckEverySteps int     `json:"check_every_steps"` // compare the parameters over ranks; 0: never
}

// EvaluateConfig configures when the rows of data.eval are evaluated, and what follows.
type EvaluateConfig struct {
	EveryEpochs int    `json:"every_epochs"` // and after the last epoch; 0: never
	EverySteps  int    `json:"every_steps"`  // in addition to every_epochs; 0: never
	Best        string `json:"best"`         // "loss" or "accuracy": keep the checkpoint of the best evaluation by it; empty: do not
	Patience    int    `json:"patience"`     // stop after this many evaluations without a better one; 0: do not
}

// DefaultConfig returns the values of keys that are left out.
func DefaultConfig() Config {
	return Config{
		Epochs: 10, BatchSize: 64, Accumulate: 1, Seed: 1, Mode: "ddp", Pipeline: 1, Precision: "float32",
		BLAS: "auto", Loss: "cross_entropy",
		Model: ModelConfig{
			Kind: "mlp", Activation: "relu", Channels: []int{16, 32}, Kernel: 3,
			Layers: 4, Heads: 4, Width: 128, Context: 128,
		},
		Data:      DataConfig{Shuffle: true, Remainder: "pad", Header: "auto", Delimiter: ",", Rows: 4096, Inputs: 20, Outputs: 1},
		Optimizer: OptimizerConfig{Kind: "sgd", LR: 0.1, Betas: [2]float64{0.9, 0.999}, Eps: 1e-8},
		Schedule:  ScheduleConfig{Kind: "constant", StepSize: 1000, Gamma: 0.1},
		DDP:       DDPConfig{BucketMB: 25, Compress: "none", Rank: 1, StartStep: 1000, Overlap: true},
		Evaluate:  EvaluateConfig{EveryEpochs: 1},
	}
}
