// Package text writes what several packages say to a person in the same way.
package text
