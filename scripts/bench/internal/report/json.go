package report

import (
	"encoding/json"
	"fmt"
	"os"
)

// WriteJSON writes all that was measured to a file.
func WriteJSON(path string, all any) error {
	text, err := json.MarshalIndent(all, "", "  ")
	if err == nil {
		err = os.WriteFile(path, append(text, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("write the samples to %s: %w", path, err)
	}
	return nil
}
