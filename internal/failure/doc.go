// Package failure carries an error from the rank where it happened to the other ranks, as a message. There it becomes an error with the
// same text and the same class.
//
// [Of] makes a [Failure] from an error; it travels as JSON. [Failure.Elsewhere] turns it into an [Error] on another rank. Classes
// are the errors that errors.Is is to find there, in an order that is the same on all ranks. If an error belongs to several classes, it has
// the first of them.
package failure
