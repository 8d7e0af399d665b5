// Package collbench times collectives for a series of sizes, checks their results, and prints rows with nccl-tests' columns (ddpbatch
// bench).
//
// [RunWorld] starts ranks of this program on this machine; [RunRank] is one of them, or one rank of an existing world. Every rank
// fills its buffers by a formula, makes the calls, and counts the elements of its result that differ from what plain Go computes.
// scripts/bench/peers does the same with other libraries, by the same method.
package collbench
