// Package auth is described when it is built.
package auth
