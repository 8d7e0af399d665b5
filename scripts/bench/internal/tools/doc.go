// Package tools finds and builds the programs that a comparison launches: those of other libraries, too, where they are
// installed.
package tools
