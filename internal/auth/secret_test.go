package auth

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
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

func TestParseSecretRefuses(t *testing.T) {
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
		s, err := NewSecret()
		if err != nil {
			t.Fatal(err)
		}
		if seen[s] {
			t.Fatal("a secret came twice, or is zero")
		}
		seen[s] = true
	}
}

// TestMac compares with values from Python: hmac.new(bytes(range(32)), m, "sha256"),
// where m is struct.pack(">Q", len(w)) + w for each word w.
func TestMac(t *testing.T) {
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

// TestSecretNeverPrints looks for the secret in all that Go prints values with.
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
	for _, verb := range "vTsqxXdboOcUeEfFgGt" { // all but %p, of which vet warns
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
	for _, leak := range []string{"c7", "C7", "199", "307", "11000111", "Ç", `\xc7`, "\xc7", "x8f"} { // 0xc7 in other clothes
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
