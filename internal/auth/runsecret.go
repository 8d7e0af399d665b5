package auth

import (
	"errors"
	"path/filepath"
)

// KeyPath is where a user's key file is, by the variables that lookup finds: DDPBATCH_SECRET_FILE, or else .config/ddpbatch/key
// below HOME. The file need not be there: see KeyFile.
func KeyPath(lookup func(string) (string, bool)) (string, error) {
	if path, _ := lookup("DDPBATCH_SECRET_FILE"); path != "" {
		return path, nil
	}
	home, _ := lookup("HOME")
	if home == "" {
		return "", errors.New("HOME is not set, where the key is that the processes of this run share; set DDPBATCH_SECRET_FILE")
	}
	return filepath.Join(home, ".config", "ddpbatch", "key"), nil
}

// RunSecret is what the processes of a run share that nobody gave a secret: one made of the key file at path, which all of them must see,
// and the run's id. Other runs of the user have others.
func RunSecret(path, run string) (Secret, error) {
	key, err := KeyFile(path)
	if err != nil {
		return Secret{}, err
	}
	return key.Derive("run", run), nil
}
