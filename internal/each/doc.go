// Package each does something for each of many things at once, where most of the time is that of a file server.
package each
