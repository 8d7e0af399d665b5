package templates

import (
	"embed"
	"path"
	"slices"
)

// Batch is the template of the batch script; slurm.Script.Render fills it.
//
//go:embed batch.sh.tmpl
var Batch string

//go:embed jobs/*.toml files
var embedded embed.FS

//go:embed completion/ddpbatch.*
var completions embed.FS

// Shells returns the shells that Completion has a script for.
func Shells() []string { return []string{"bash", "zsh", "fish"} }

// Completion returns the script by which a shell completes ddpbatch's command lines. The script asks "ddpbatch complete SHELL WORDS..." for
// completions of the last word. The first line of the answer is "words", "files" or "folders"; in the last two cases the shell also offers
// files or folders itself. " open" follows it if the shell must not add a space. Each further line is a completion, a tab, and its
// description.
func Completion(shell string) (script string, ok bool) {
	if !slices.Contains(Shells(), shell) {
		return "", false
	}
	text, err := completions.ReadFile("completion/ddpbatch." + shell)
	if err != nil {
		panic("templates: a completion script is not embedded")
	}
	return string(text), true
}

// Starter is a job file to start from, and what it needs beside it.
type Starter struct {
	Name    string // as `ddpbatch init --template` takes it
	Summary string // one line, without a full stop
	Text    string // a whole job.toml
	Files   []File // the files beside the job file
	Bring   string // what else the job needs, and where to get it; empty: nothing
	Place   string // the file or folder for it, relative to the job file's folder; a folder ends with a slash; empty: not there
}

// File is a file that a starter's job file needs.
type File struct{ Name, Text string }

const bringPyTorch = "PyTorch, for the python3 that the nodes find (pip install torch, or Debian's python3-torch; setup.venv " +
	"names a virtual environment)"

// Starters lists all starters; the first is the one to try first. The caller owns the slice.
func Starters() []Starter {
	return []Starter{
		read("simulate", "a linear model on generated data, 2 nodes x 2 ranks: runs anywhere", ""),
		read("mnist", "an MLP on handwritten digits by the built-in trainer, 4 nodes x 2 ranks",
			"the MNIST files t10k-images-idx3-ubyte.gz and t10k-labels-idx1-ubyte.gz in data/, from "+
				"https://ossci-datasets.s3.amazonaws.com/mnist/").at("data/"),
		read("gpt", "a GPT on a text of yours by the built-in trainer, 2 nodes x 2 ranks",
			"any text as input.txt, such as https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt").
			at("input.txt"),
		read("pytorch", "a PyTorch script, one rank per GPU, 2 nodes x 4 GPUs", bringPyTorch, "train.py"),
		read("torchrun", "the same under torchrun, one on each node", bringPyTorch, "train.py", "torchrun.sh"),
		read("command", "any command, several ranks on each node", ""),
		read("task", "any command, each rank started by srun (task mode)", ""),
		read("process", "one process of any program", ""),
		read("array", "any command, once for each number of an array", ""),
		read("sweep", "learning rates compared, as one array", ""),
		read("container", "any command in a container, 2 nodes x 2 ranks",
			"an image: \"apptainer pull image.sif docker://python:3.13-slim\", or another runtime's").at("image.sif"),
		read("chain", "work longer than the time limit: 3 jobs, one after the other", ""),
		read("parallelcluster", "a PyTorch script on AWS ParallelCluster, 2 nodes x 8 GPUs; not tested there", bringPyTorch,
			"train.py", "cluster.yaml"),
	}
}

// read makes a starter from the embedded job file of that name and the embedded files.
func read(name, summary, bring string, files ...string) Starter {
	s := Starter{Name: name, Summary: summary, Text: text("jobs", name+".toml"), Bring: bring}
	for _, file := range files {
		s.Files = append(s.Files, File{file, text("files", file)})
	}
	return s
}

// at returns the starter with a place for what it needs.
func (s Starter) at(place string) Starter {
	s.Place = place
	return s
}

func text(folder, name string) string {
	data, err := embedded.ReadFile(path.Join(folder, name))
	if err != nil {
		panic("templates: " + name + " is not embedded")
	}
	return string(data)
}

// Find returns the starter with the given name.
func Find(name string) (s Starter, ok bool) {
	starters := Starters()
	i := slices.IndexFunc(starters, func(s Starter) bool { return s.Name == name })
	if i < 0 {
		return Starter{}, false
	}
	return starters[i], true
}
