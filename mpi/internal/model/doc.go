// Package model predicts what algorithms of collectives cost, and chooses among them.
//
// The prediction is the latency-bandwidth model of Hockney (1994), fitted to the times of a few messages. It is a matter of
// arithmetic alone: ranks that have the same [algorithm.Machine] come to the same choice.
package model
