// Package stats describes what is known of a quantity after a few launches: the median, and an interval that needs no assumption about the
// distribution.
package stats
