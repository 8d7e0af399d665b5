// Package chunktest makes data like that in checkpoints, for the tests and benchmarks of what stores it. The data of a
// seed is the same every time, on one kind of CPU.
package chunktest
