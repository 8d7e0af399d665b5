// Package paired compares sides: it launches them in turn, the given number of times, and compares them launch by launch. It also measures
// what has no peer.
package paired
