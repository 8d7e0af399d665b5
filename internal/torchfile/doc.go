// Package torchfile reads what torch.save has written, far enough to compare two such files: which tensors and values there are, by the
// path to each, and the tensors' bytes. It runs nothing of what a file asks for: Python's objects of which it knows nothing are names with
// arguments. Files are those of PyTorch 1.6 and later: a zip archive whose data.pkl is a pickle, with a member for each storage
// (torch/serialization.py, _save).
package torchfile
