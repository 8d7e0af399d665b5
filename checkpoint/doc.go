// Package checkpoint is described when it is built.
package checkpoint
