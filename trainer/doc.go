// Package trainer is described when it is built.
package trainer
