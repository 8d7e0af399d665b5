// Package vfs is described when it is built.
package vfs
