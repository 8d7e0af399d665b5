// Package golden reads the values of a training that PyTorch's DistributedDataParallel has done, for tests that repeat it.
package golden
