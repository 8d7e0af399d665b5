// Package paired is how sides are compared: launched in turn, as often as asked, and held against each other launch by launch. It also
// measures what has no peer.
package paired
