package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// What errors show of text from a file, at most; the rest of it may be 60 MiB.
const (
	maxQuoted = 80
	maxError  = 240 // of an error of encoding/json, which quotes for itself
)

// quote is text in quotation marks, of which the middle is left out where it is long.
func quote(text string) string { return strconv.Quote(short(text, maxQuoted)) }

// short is text of about limit bytes: its beginning and its end.
func short(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	head := limit * 2 / 3
	tail := limit - head
	return fmt.Sprintf("%s ... %d bytes ... %s", text[:head], len(text)-limit, text[len(text)-tail:])
}

// unmarshal is json.Unmarshal with errors of bounded length.
func unmarshal(data []byte, v any) error {
	if err := json.Unmarshal(data, v); err != nil {
		return errors.New(short(err.Error(), maxError))
	}
	return nil
}
