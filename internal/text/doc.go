// Package text formats text for people in the same way for all packages.
package text
