// Package torchfile reads files of torch.save as far as needed to compare two of them: which tensors and values they hold, by the path to
// each, and the tensors' bytes. It never executes code that a file names: unknown Python objects are names with arguments. It supports the
// format of PyTorch 1.6 and later: a zip archive whose data.pkl is a pickle, with a member for each storage (torch/serialization.py,
// _save).
package torchfile
