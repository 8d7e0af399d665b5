package auth

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"ddpbatch/internal/replace"
	"ddpbatch/internal/vfs"
)

// Secret is the secret that the ranks of one run share: 32 random bytes. The zero Secret means that there
// is none; no handshake accepts it.
//
// Printing, logging or marshaling a Secret shows a placeholder. There are two
// exceptions, for which fmt does not call a method: %p, and a struct that holds a Secret in an
// unexported field. Types that hold one in such a field must not be printed.
type Secret [32]byte

const redacted = "[secret]"

// NewSecret makes a secret from the system's source of randomness.
func NewSecret() (s Secret) {
	rand.Read(s[:]) // never returns an error (crypto/rand)
	return s
}

// ParseSecret parses 64 hexadecimal digits, the form that Hex returns. Its errors
// do not contain the text.
func ParseSecret(text string) (Secret, error) {
	var s Secret
	if len(text) != hex.EncodedLen(len(s)) {
		return Secret{}, fmt.Errorf("parse a secret: it has %d characters, and should have %d hexadecimal digits",
			len(text), hex.EncodedLen(len(s)))
	}
	if _, err := hex.Decode(s[:], []byte(text)); err != nil {
		return Secret{}, errors.New("parse a secret: it has characters that are not hexadecimal digits")
	}
	if s.IsZero() {
		return Secret{}, errors.New("parse a secret: all of its digits are 0")
	}
	return s, nil
}

// Hex returns the secret as 64 hexadecimal digits, the form in which it travels in an environment or a file of mode
// 0600.
func (s Secret) Hex() string { return hex.EncodeToString(s[:]) }

// Derive returns another secret made from s and the given words. Different
// words, or the same text split into words differently, give unrelated secrets.
// s cannot be computed from them.
func (s Secret) Derive(words ...string) Secret { return s.mac("derive", words...) }

// Equal compares two secrets in a time that does not depend on their bytes.
func (s Secret) Equal(other Secret) bool { return hmac.Equal(s[:], other[:]) }

// IsZero reports whether s is the zero Secret.
func (s Secret) IsZero() bool { return s.Equal(Secret{}) }

// String returns a placeholder.
func (s Secret) String() string { return redacted }

// GoString returns a placeholder.
func (s Secret) GoString() string { return redacted }

// Format prints a placeholder for every verb: %d or %x would otherwise show the bytes.
func (s Secret) Format(state fmt.State, _ rune) { io.WriteString(state, redacted) }

// LogValue returns a placeholder.
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText returns a placeholder, which ParseSecret refuses.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// mac returns HMAC-SHA256 over purpose and words, each preceded by its length, so that
// different lists of words give different inputs.
func (s Secret) mac(purpose string, words ...string) Secret {
	h := hmac.New(sha256.New, s[:])
	add := func(word string) {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(word))))
		io.WriteString(h, word)
	}
	add(purpose)
	for _, word := range words {
		add(word)
	}
	return Secret(h.Sum(nil))
}

// KeyPath returns the path of the user's key file, from the variables that lookup finds: DDPBATCH_SECRET_FILE, or else .config/ddpbatch/key
// below HOME. The file need not exist: see KeyFile.
func KeyPath(lookup func(string) (string, bool)) (string, error) {
	if path, _ := lookup("DDPBATCH_SECRET_FILE"); path != "" {
		return path, nil
	}
	home, _ := lookup("HOME")
	if home == "" {
		return "", errors.New("HOME, which holds the key that the processes of this run share, is not set; set DDPBATCH_SECRET_FILE")
	}
	return filepath.Join(home, ".config", "ddpbatch", "key"), nil
}

// RunSecret returns the secret of a run whose processes were not given one. It is made from the key file at path, which all of them must
// see, and the run's id, so each run of the user has its own.
func RunSecret(path, run string) (Secret, error) {
	key, err := KeyFile(path)
	if err != nil {
		return Secret{}, err
	}
	return key.Derive("run", run), nil
}

// KeyFile returns the secret in the file at path, which holds 64 hexadecimal
// digits and an optional newline. If there is no such file, KeyFile
// makes one with a new secret, mode 0600, and the folders above it, mode 0700. If several
// processes do so at once, on one machine or over NFS, all get the same secret.
//
// KeyFile refuses a file that another user owns, or that anyone but its owner may read or
// write, also behind a symbolic link.
func KeyFile(path string) (Secret, error) {
	s, err := readKey(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = createKey(path); err == nil {
			s, err = readKey(path)
		}
	}
	if err != nil {
		return Secret{}, fmt.Errorf("key file %s: %w", path, err)
	}
	return s, nil
}

func readKey(path string) (Secret, error) {
	f, info, err := vfs.OpenRegular(path)
	if err != nil {
		return Secret{}, withoutPath(err)
	}
	defer f.Close()
	if err := private(info); err != nil {
		return Secret{}, err
	}
	text, err := io.ReadAll(io.LimitReader(f, 128))
	if err != nil {
		return Secret{}, withoutPath(err)
	}
	return ParseSecret(strings.TrimSuffix(string(text), "\n"))
}

// private refuses a file that others could have read or written.
func private(info fs.FileInfo) error {
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return fmt.Errorf("its mode is %#o, so others may have read or changed it: delete it, and ddpbatch makes a new one", mode)
	}
	if owner, uid := vfs.Owner(info), os.Geteuid(); owner != uid {
		return fmt.Errorf("user %d owns it, not user %d, who runs this: name another file", owner, uid)
	}
	return nil
}

// createKey makes the file if it still does not exist. Other processes see it only with its whole content.
func createKey(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	s := NewSecret()
	o := replace.Options{Mode: 0o600, Keep: true}
	err := replace.FileWith(context.Background(), vfs.OS{}, path, o, replace.Bytes([]byte(s.Hex()+"\n")))
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// withoutPath removes the path from an error that its caller wraps with the path.
func withoutPath(err error) error {
	if perr, ok := errors.AsType[*fs.PathError](err); ok {
		return perr.Err
	}
	return err
}
