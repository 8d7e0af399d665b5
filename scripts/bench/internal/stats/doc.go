// Package stats says what is known of a quantity after a few launches that gave it: their median, and an interval that needs
// no assumption about how they are distributed.
package stats
