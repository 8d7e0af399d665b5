// Package each calls a function for many items at once, when most of the time is spent waiting for a file server.
package each
