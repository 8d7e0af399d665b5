// Package launch is described when it is built.
package launch
