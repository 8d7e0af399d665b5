// Package model predicts what algorithms of collectives cost, and chooses among them.
//
// The prediction uses the latency-bandwidth model of Hockney (1994). Its parameters depend on the length of the buffer and are
// derived from the times of a few messages. The result is only a matter of arithmetic: ranks with the same [Costs] make the same
// choice.
package model
