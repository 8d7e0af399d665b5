// Package torch runs real PyTorch as a test's oracle.
package torch
