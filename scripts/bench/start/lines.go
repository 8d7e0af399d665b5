package main

import "strings"

// unlabelled is a line without the label that ddpbatch puts before a rank's: `[host rank] `.
func unlabelled(line string) string {
	label, rest, found := strings.Cut(line, "] ")
	if !found || !strings.HasPrefix(label, "[") {
		return line
	}
	return rest
}
