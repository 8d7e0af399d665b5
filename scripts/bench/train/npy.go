package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"strings"
)

// writeNPY writes an array as numpy.save does, in format 1.0 (numpy.lib.format): of float32, or of int64.
func writeNPY(path string, values any, shape ...int) error {
	kind := "<f4"
	if _, ok := values.([]int64); ok {
		kind = "<i8"
	}
	sizes := strings.Trim(fmt.Sprint(shape), "[]")
	header := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s,), }", kind, strings.ReplaceAll(sizes, " ", ", "))
	const fixed = 10 // bytes before the header, which with it and its newline fills lines of 64
	header += strings.Repeat(" ", 63-(fixed+len(header))%64) + "\n"
	text := append([]byte("\x93NUMPY\x01\x00"), byte(len(header)), byte(len(header)>>8))
	text, err := binary.Append(append(text, header...), binary.LittleEndian, values)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}
