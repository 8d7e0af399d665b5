// Package torch runs PyTorch as a reference for tests.
package torch
