package auth

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"ddpbatch/internal/testkit"
)

// counting is the secret 00 01 02 ... 1f.
func counting() Secret {
	var s Secret
	for i := range s {
		s[i] = byte(i)
	}
	return s
}

func TestSecretHexRoundTrip(t *testing.T) {
	const text = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
	if got := counting().Hex(); got != text {
		t.Errorf("Hex = %q, want %q", got, text)
	}
	for _, in := range []string{text, strings.ToUpper(text)} {
		if got, err := ParseSecret(in); err != nil || got != counting() {
			t.Errorf("ParseSecret(%q): right %v, error %v", in, got == counting(), err)
		}
	}
}

func TestParseSecretRefusesBadText(t *testing.T) {
	good := counting().Hex()
	for name, in := range map[string]string{
		"empty":       "",
		"short":       good[:62],
		"odd":         good[:63],
		"long":        good + "00",
		"newline":     good + "\n",
		"letters":     strings.Repeat("zq", 32),
		"placeholder": redacted,
		"zeros":       strings.Repeat("0", 64),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseSecret(in)
			if err == nil || !got.IsZero() {
				t.Fatalf("accepted, or not zero: error %v", err)
			}
			if in != "" && strings.Contains(err.Error(), strings.TrimSpace(in)) || strings.ContainsAny(err.Error(), "zq") {
				t.Errorf("the error shows the text: %v", err)
			}
		})
	}
}

func TestNewSecretDiffers(t *testing.T) {
	seen := map[Secret]bool{{}: true}
	for range 100 {
		s := NewSecret()
		if seen[s] {
			t.Fatal("a secret came twice, or is zero")
		}
		seen[s] = true
	}
}

// TestMacIsPythonsHMAC compares the MACs with values from Python: hmac.new(bytes(range(32)), m, "sha256"), where m is struct.pack(">Q",
// len(w)) + w for each word w.
func TestMacIsPythonsHMAC(t *testing.T) {
	transcript := &transcript{
		binding:     Binding{Run: "run-7", Attempt: 3, Role: "store"},
		clientNonce: nonce(bytes.Repeat([]byte{0xaa}, 32)), serverNonce: nonce(bytes.Repeat([]byte{0xbb}, 32)),
		clientHello: []byte("rank 5"), serverHello: []byte("node0"),
	}
	for name, c := range map[string]struct {
		got  Secret
		want string
	}{
		"derive, no words":  {counting().Derive(), "da8ada22f6efdb7592e1c62a08a48c2700eb1afa3576ce944f9483c2807badf1"},
		"derive, two words": {counting().Derive("store", "1"), "571d5be8edd10683ff1346995fd1bd55c7567f47d8304aa659a15438b3a31a80"},
		"client's proof":    {transcript.proof(counting(), "client"), "07711b7792f86becf89ecf21241b4739cc632ca25a3333f7586d9e820ba95c8f"},
		"server's proof":    {transcript.proof(counting(), "server"), "c12fc5e6d2ae2b37a94c55e39055008ac9863cebdef108d0f19a85b3aed8bdee"},
	} {
		if c.got.Hex() != c.want {
			t.Errorf("%s: got %s, want %s", name, c.got.Hex(), c.want)
		}
	}
}

func TestDeriveIsUnambiguous(t *testing.T) {
	seen := map[Secret]string{counting(): "the secret itself"}
	for _, words := range [][]string{
		nil, {""}, {"", ""}, {"ab"}, {"a", "b"}, {"ab", ""}, {"", "ab"}, {"a\x00b"}, {"handshake"},
		{"\x00\x00\x00\x00\x00\x00\x00\x01a"},
	} {
		s := counting().Derive(words...)
		if before, ok := seen[s]; ok {
			t.Errorf("%q gives the same secret as %s", words, before)
		}
		seen[s] = fmt.Sprintf("%q", words)
	}
}

// TestSecretNeverPrints searches for the secret in everything that Go's printing verbs make of values.
func TestSecretNeverPrints(t *testing.T) {
	s := Secret(bytes.Repeat([]byte{0xc7}, 32))
	type config struct {
		Secret  Secret
		Pointer *Secret
		List    []Secret
		Map     map[string]Secret
		Any     any
	}
	c := config{s, &s, []Secret{s}, map[string]Secret{"k": s}, s}

	var out bytes.Buffer
	for _, verb := range "vTsqxXdboOcUeEfFgGt" { // all but %p, about which vet warns
		for _, flags := range []string{"", "+", "#", " ", "032.4"} {
			fmt.Fprintf(&out, "%"+flags+string(verb)+"\n", s)
			fmt.Fprintf(&out, "%"+flags+string(verb)+"\n", c)
		}
	}
	fmt.Fprintln(&out, s, c, fmt.Errorf("wrapped: %v", s))
	for _, h := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
		slog.New(h).Info("hello", "secret", s, "pointer", &s, "config", c)
	}
	if err := json.NewEncoder(&out).Encode(c); err != nil {
		t.Fatal(err)
	}

	if !strings.Contains(out.String(), redacted) {
		t.Fatal("nothing was printed")
	}
	for _, leak := range []string{"c7", "C7", "199", "307", "11000111", "Ç", `\xc7`, "\xc7", "x8f"} { // other notations of 0xc7
		if i := strings.Index(out.String(), leak); i >= 0 {
			t.Errorf("%q shows in %q", leak, out.String()[max(0, i-60):min(out.Len(), i+60)])
		}
	}
}

func TestSecretPlaceholderDoesNotLoad(t *testing.T) {
	data, err := json.Marshal(counting())
	if err != nil {
		t.Fatal(err)
	}
	var back Secret
	if err := json.Unmarshal(data, &back); err == nil {
		t.Errorf("%s was read back as a secret", data)
	}
}

func FuzzParseSecret(f *testing.F) {
	f.Add(counting().Hex())
	f.Add(redacted)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSecret(text)
		if err == nil && s.Hex() != strings.ToLower(text) {
			t.Errorf("%q became %s", text, s.Hex())
		}
	})
}

func TestKeyPath(t *testing.T) {
	tests := []struct {
		name, file, home, want string
	}{
		{"home", "", "/home/u", "/home/u/.config/ddpbatch/key"},
		{"file", "/shared/key", "/home/u", "/shared/key"},
		{"file_without_home", "/shared/key", "", "/shared/key"},
		{"nothing", "", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := KeyPath(func(name string) (string, bool) {
				value := map[string]string{"DDPBATCH_SECRET_FILE": tt.file, "HOME": tt.home}[name]
				return value, value != ""
			})
			if got != tt.want || (err == nil) != (tt.want != "") {
				t.Errorf("got %q, %v, want %q", got, err, tt.want)
			}
			if err != nil && !strings.Contains(err.Error(), "DDPBATCH_SECRET_FILE") {
				t.Errorf("%q does not say what to set", err)
			}
		})
	}
}

func TestRunSecretDiffersFromRunToRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	secretOf := func(run string) Secret {
		t.Helper()
		s, err := RunSecret(path, run)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := secretOf("a") // makes the file
	if again := secretOf("a"); again != first {
		t.Error("a run has two secrets")
	}
	if secretOf("b") == first {
		t.Error("two runs have one secret")
	}
	if key, err := KeyFile(path); err != nil || key == first {
		t.Errorf("the secret of a run is the key itself, or there is none: %v", err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := RunSecret(path, "a"); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a key that others may read: got %v", err)
	}
}

func TestKeyFileIsMadeOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b", "key")
	first, err := KeyFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if first.IsZero() {
		t.Error("the key is zero")
	}
	if second, err := KeyFile(path); err != nil || second != first {
		t.Errorf("read again: same %v, error %v", second == first, err)
	}
	for p, want := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700, filepath.Dir(filepath.Dir(path)): 0o700} {
		if info, err := os.Stat(p); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: mode %v, error %v, want %v", p, info.Mode().Perm(), err, want)
		}
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
		t.Errorf("left beside the key: %v", entries)
	}
}

func TestKeyFileIsOneForManyAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys", "key")
	keys := make([]Secret, 32)
	var wg sync.WaitGroup
	for i := range keys {
		wg.Go(func() {
			var err error
			if keys[i], err = KeyFile(path); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for i, k := range keys {
		if k != keys[0] {
			t.Errorf("caller %d got another key", i)
		}
	}
}

func TestKeyFileRefusesWhatOthersMayRead(t *testing.T) {
	good := counting().Hex() + "\n"
	write := func(t *testing.T, path, text string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		prepare func(t *testing.T, path string)
		want    string
	}{
		"group may read":  {func(t *testing.T, p string) { write(t, p, good, 0o640) }, "its mode is 0640"},
		"others may read": {func(t *testing.T, p string) { write(t, p, good, 0o604) }, "its mode is 0604"},
		"group may write": {func(t *testing.T, p string) { write(t, p, good, 0o620) }, "its mode is 0620"},
		"link to a readable one": {func(t *testing.T, p string) {
			write(t, p+".target", good, 0o644)
			if err := os.Symlink(p+".target", p); err != nil {
				t.Fatal(err)
			}
		}, "its mode is 0644"},
		"link to nothing": {func(t *testing.T, p string) {
			if err := os.Symlink(p+".absent", p); err != nil {
				t.Fatal(err)
			}
		}, "no such file"},
		"folder": {func(t *testing.T, p string) {
			if err := os.Mkdir(p, 0o700); err != nil {
				t.Fatal(err)
			}
		}, "not a regular file but a folder"},
		"fifo": {func(t *testing.T, p string) {
			if err := syscall.Mkfifo(p, 0o600); err != nil {
				t.Fatal(err)
			}
		}, "not a regular file but a pipe"},
		"empty":     {func(t *testing.T, p string) { write(t, p, "", 0o600) }, "0 characters"},
		"two lines": {func(t *testing.T, p string) { write(t, p, good+"\n", 0o600) }, "65 characters"},
		"huge":      {func(t *testing.T, p string) { write(t, p, strings.Repeat("0", 1<<20), 0o600) }, "128 characters"},
		"another owner": {func(t *testing.T, p string) {
			write(t, p, good, 0o600)
			if err := os.Chown(p, 12345, -1); err != nil {
				t.Skipf("only root can give a file away: %v", err)
			}
		}, "user 12345 owns it"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "key")
			c.prepare(t, path)
			s, err := KeyFile(path)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "key file "+path+": ") {
				t.Errorf("error %v, want one about %q", err, c.want)
			}
			if !s.IsZero() {
				t.Error("a key came with the error")
			}
		})
	}
}

// A file server may hold a lease on a key file for one of its clients. KeyFile reads the file once the lease is given back.
func TestKeyFileWaitsForALease(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	want, err := KeyFile(path)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Lease(t, path)
	if got, err := KeyFile(path); err != nil || got != want {
		t.Errorf("same %v, error %v", got == want, err)
	}
}

func TestKeyFileFollowsLinkToPrivateFile(t *testing.T) {
	dir := t.TempDir()
	want, err := KeyFile(filepath.Join(dir, "real"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if got, err := KeyFile(filepath.Join(dir, "link")); err != nil || got != want {
		t.Errorf("same %v, error %v", got == want, err)
	}
}

func TestKeyFileSaysThatNoneCanBeMade(t *testing.T) {
	blocker := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(blocker, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := KeyFile(filepath.Join(blocker, "key")); err == nil {
		t.Error("a key was made below a file")
	}
}
