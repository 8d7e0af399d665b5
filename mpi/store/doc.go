// Package store is described when it is built.
package store
