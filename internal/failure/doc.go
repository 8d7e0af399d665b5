// Package failure carries an error from the rank where it happened to the others: as a message, and there as an error that reads like the
// first and is of its class.
//
// [Of] makes a [Failure] of an error, which travels as JSON. [Failure.Elsewhere] is the error of it on another rank, an [Error]. Classes
// are the errors that errors.Is is to find there, in an order that is the same on all ranks; an error that is of several is of
// the first there.
package failure
