// Package chunktest makes data like that in checkpoints, for the tests and benchmarks of packages that store it. A seed gives the same
// data every time, on one kind of CPU.
package chunktest
