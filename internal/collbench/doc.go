// Package collbench times collectives over sizes, checks their results, and makes rows of nccl-tests' columns (ddpbatch bench).
//
// [RunWorld] starts ranks of this program on this machine; [RunRank] is one of them, or one of a world that is there already. Every rank
// fills its buffers by a formula, makes the calls, and counts the elements of its result that are not what plain Go says they must be.
// scripts/bench/peers does the same with other libraries, by the same method.
package collbench
