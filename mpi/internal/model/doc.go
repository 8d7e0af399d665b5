// Package model predicts what algorithms of collectives cost, and chooses among them.
//
// The prediction is the latency-bandwidth model of Hockney (1994), whose parameters depend on the length of the buffer and come from the
// times of a few messages. It is a matter of arithmetic alone: ranks that have the same [Costs] come to the same choice.
package model
