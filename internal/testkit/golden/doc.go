// Package golden holds the values of a training run of PyTorch's DistributedDataParallel, for tests that repeat it.
package golden
