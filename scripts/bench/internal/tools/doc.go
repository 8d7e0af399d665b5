// Package tools finds and builds the programs that a comparison launches, including those of other libraries if they are installed.
package tools
