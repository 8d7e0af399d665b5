package translate

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"ddpbatch/internal/redact"
	words "ddpbatch/internal/text"
)

// Package redact blanks what a comment shows, by names that contain TOKEN and the like. What is copied must be examined more closely:
// TOKENIZERS_PARALLELISM=false and --max-tokens 2048 are not secrets, and without them the job would be another.

// secretForm matches what looks like a key: tokens of services, and a password in a URL.
var secretForm = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\b(?:hf_|ghp_|github_pat_|glpat-|sk-|xox[abp]-|AKIA)[A-Za-z0-9_-]{12,}|://[^/\s:@]*:[^/\s@]+@`)
})

// blanked blanks in the text of a comment what may be secret.
func blanked(text string) string {
	return secretForm().ReplaceAllStringFunc(redact.Text(text), func(found string) string {
		if strings.HasPrefix(found, "://") {
			return "://" + redact.Blank + "@"
		}
		return redact.Blank
	})
}

// namesSecret reports whether a variable or flag of this name holds a secret, by the last word of the name. sure means that any value of it
// is a secret.
func namesSecret(name string) (named, sure bool) {
	parts := strings.FieldsFunc(strings.ToUpper(name), func(r rune) bool { return r == '_' || r == '-' || r == '.' })
	if n := len(parts); n > 1 && parts[n-1] == "ID" && parts[n-2] == "KEY" { // AWS_ACCESS_KEY_ID
		parts = parts[:n-1]
	}
	if len(parts) == 0 {
		return false, false
	}
	last := strings.TrimRight(parts[len(parts)-1], "0123456789")
	for _, word := range []string{"SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL"} {
		if strings.Contains(strings.Join(parts, " "), word) {
			return true, true
		}
	}
	owners := strings.Fields("API ACCESS AUTH PRIVATE HF HUB WANDB GITHUB GITLAB BEARER SSH")
	named = last == "KEY" || strings.HasSuffix(last, "TOKEN") || strings.HasSuffix(last, "APIKEY")
	sure = named && (last != "KEY" && last != "TOKEN" || len(parts) == 1 && last == "TOKEN" ||
		len(parts) > 1 && slices.Contains(owners, parts[len(parts)-2]))
	return named, sure
}

// plainValue matches values that are not secrets, whatever their names are.
var plainValue = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?i:true|false|yes|no|on|off|none|null|-?[0-9]{0,6}|<.*>|\[.*\])$`)
})

// isSecret reports whether the value of a variable must not be copied.
func isSecret(name, value string) bool {
	named, _ := namesSecret(name)
	return named && !plainValue().MatchString(value) || secretForm().MatchString(value)
}

// isSecretArgument is isSecret for a flag's value, which is rarely a secret: --sort-key length.
func isSecretArgument(name, value string) bool {
	named, sure := namesSecret(name)
	const shortest = 8
	looks := len(value) >= shortest && strings.ContainsAny(value, "0123456789")
	return named && (sure || looks) && !plainValue().MatchString(value) && !strings.HasPrefix(value, "$") &&
		!strings.HasPrefix(value, `"$`) ||
		secretForm().MatchString(value)
}

// withoutSecrets returns the words of a command that may be copied. found reports whether there are others.
func withoutSecrets(command []string) (shown []string, found bool) {
	flag := "" // the word before, if it names what follows
	for _, word := range command {
		name, value, assigned := strings.Cut(word, "=")
		bare := strings.TrimLeft(word, `("'`) // for an element of an array
		safe := word
		switch {
		case strings.ContainsAny(word, " \n") && holdsSecret(word): // a script
			safe = redact.Blank
		case assigned && isSecretArgument(strings.TrimLeft(name, `-("'`), value):
			safe = name + "=" + redact.Blank
		case flag != "" && !strings.HasPrefix(bare, "-") && isSecretArgument(flag, word), secretForm().MatchString(word):
			safe = redact.Blank
		}
		flag = ""
		if !assigned && (strings.HasPrefix(bare, "-") || strings.HasSuffix(word, ":")) { // a flag, or a key of YAML or JSON
			flag = strings.Trim(bare, `-:"'`)
		}
		found = found || safe != word
		shown = append(shown, safe)
	}
	return shown, found
}

// parted returns the words of a line. The first element of an array, NAME=(--flag ..., is a word too.
func parted(text string) []string { return strings.Fields(arrayForm().ReplaceAllString(text, "=( $1")) }

var arrayForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`=\(([^\s$])`) })

// holdsSecret reports whether a line must not be copied.
func holdsSecret(text string) bool {
	list := parted(text)
	_, found := withoutSecrets(list)
	at := slices.Index(list, "login") // wandb login KEY
	return found || at > 0 && at+1 < len(list) && !strings.HasPrefix(list[at+1], "-") && !strings.HasPrefix(list[at+1], "$") &&
		!strings.HasPrefix(list[at+1], `"$`)
}

// maxShown is how many bytes of a script's line a comment shows.
const maxShown = 160

// quoted prepares a script's text for a comment: on one line, shortened, and without secrets.
func quoted(text string) string {
	list := parted(blanked(text))
	list, _ = withoutSecrets(list)
	if at := slices.Index(list, "login"); at > 0 && at+1 < len(list) && holdsSecret(text) {
		list = append(list[:at+1], redact.Blank)
	}
	return words.Shortened(words.Clean(strings.Join(list, " ")), maxShown)
}
