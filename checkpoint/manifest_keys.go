package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// checkKeys refuses what encoding/json lets pass: a key that stands twice in one object (it takes
// the last), a key that differs from a field's name only in case (it takes it for the field), and
// bytes that are not UTF-8 (it replaces them). Inside a value keys may be any text, but not twice.
func checkKeys(data []byte) error {
	if !utf8.Valid(data) {
		return errors.New("it is not UTF-8")
	}
	c := keyChecker{dec: json.NewDecoder(bytes.NewReader(data)), objects: 2*maxTensors + maxShards}
	c.dec.UseNumber()
	if err := c.value(0, false); err != nil {
		return err
	}
	if _, err := c.dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the manifest's object")
	}
	return nil
}

type keyChecker struct {
	dec      *json.Decoder
	objects  int  // how many more may come
	inValues bool // the manifest's field at hand is "values"
}

// value reads one JSON value. The free are those inside a value of State.Values, whose keys are
// the caller's.
func (c *keyChecker) value(depth int, free bool) error {
	token, err := c.dec.Token()
	if err != nil {
		return err
	}
	delim, nested := token.(json.Delim)
	if !nested {
		return nil
	}
	if depth >= maxJSONDepth {
		return fmt.Errorf("it is nested deeper than %d", maxJSONDepth)
	}
	if delim == '{' {
		return c.object(depth, free)
	}
	for c.dec.More() {
		if err := c.value(depth+1, free); err != nil {
			return err
		}
	}
	_, err = c.dec.Token() // the closing bracket
	return err
}

func (c *keyChecker) object(depth int, free bool) error {
	if c.objects--; c.objects < 0 {
		return errors.New("it has too many objects")
	}
	seen := map[string]bool{}
	for c.dec.More() {
		token, err := c.dec.Token()
		if err != nil {
			return err
		}
		key, ok := token.(string)
		if !ok {
			return errors.New("a key is not a string")
		}
		if seen[key] {
			return fmt.Errorf("key %q is there twice", key)
		}
		seen[key] = true
		if !free && !validKey(key) {
			return fmt.Errorf("key %q is not [a-z0-9_.]{1,64}", key)
		}
		if depth == 0 {
			c.inValues = key == "values"
		}
		if err := c.value(depth+1, free || c.inValues && depth == 1); err != nil {
			return err
		}
	}
	_, err := c.dec.Token() // the closing brace
	return err
}
