package redact

import (
	"os/exec"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestNamedKnowsTokensAndKeys(t *testing.T) {
	for name, want := range map[string]bool{
		"WANDB_API_KEY": true, "hf_token": true, "AWS_SECRET_ACCESS_KEY": true, "Db.Password": true, "GOOGLE_APPLICATION_CREDENTIALS": true,
		"setup.env.Token": true, "PATH": false, "": false, "OMP_NUM_THREADS": false, "PASS": false,
	} {
		if Named(name) != want {
			t.Errorf("%q: %t", name, !want)
		}
	}
}

func TestTextHidesTokensAndKeys(t *testing.T) {
	for text, want := range map[string]string{
		"":                             "",
		"nothing = 3":                  "nothing = 3",
		"A_TOKEN=abc python train.py":  "A_TOKEN=*** python train.py",
		"export a_key='a b'\"c\"\\ d;": "export a_key=***;",
		"#SBATCH --export=ALL,HF_TOKEN=abc,B=2\nsrun":   "#SBATCH --export=ALL,HF_TOKEN=***\nsrun",
		"'--export=ALL,HF_TOKEN=a b' script.sh":         "'--export=ALL,HF_TOKEN=***' script.sh",
		`'HF_TOKEN=a'\''b c' script.sh`:                 `'HF_TOKEN=***' script.sh`,
		`bash -c 'A=1 MY_KEY="x y" python t.py'`:        `bash -c 'A=1 MY_KEY=***'`,
		"X_TOKEN=$(echo a b) y":                         "X_TOKEN=*** y",
		"X_TOKEN=`echo a b` y":                          "X_TOKEN=*** y",
		"MY_SECRET=\"-----BEGIN\nabc\n-----END\"\nnext": "MY_SECRET=***\nnext",
		"--set setup.env.MY_TOKEN=abc gives it nothing": "--set setup.env.MY_TOKEN=*** gives it nothing",
		`setup.env.MY_TOKEN = "abc" # comment`:          `setup.env.MY_TOKEN = *** # comment`,
		`read "X_TOKEN=a b": it is wrong`:               `read "X_TOKEN=***": it is wrong`,
		"KeyError: 'x'":                                 "KeyError: 'x'",
		"X_TOKEN= y":                                    "X_TOKEN= y",
		`bash -c "X_TOKEN=abc" y`:                       `bash -c "X_TOKEN=***" y`,
		"X_TOKEN=${A:-b c} y":                           "X_TOKEN=*** y",
		"X_TOKEN=\ny":                                   "X_TOKEN=\ny",
		"A_KEY=abc B_KEY=def":                           "A_KEY=*** B_KEY=***",
		"--api-key=abc --lr=3":                          "--api-key=*** --lr=3",
		`unclosed 'X_TOKEN=a b`:                         `unclosed 'X_TOKEN=***`,
		"docker://ann:abc@reg/x https://:x@y":           "docker://ann:***@reg/x https://:***@y",
		"https://ann:$PW@host/a http://h:80/x@y a://b@": "https://ann:$PW@host/a http://h:80/x@y a://b@",
	} {
		if got := Text(text); got != want {
			t.Errorf("%q:\ngot  %q\nwant %q", text, got, want)
		}
	}
}

// If a shell would assign a value to a variable whose name suggests a secret, the text no longer has the value, however it is quoted. The
// rest of the text stays.
func TestTextHidesWhatAShellAssigns(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash here to read words with")
	}
	rapid.Check(t, func(rt *rapid.T) {
		part := rapid.OneOf(
			rapid.StringMatching(`[a-z]{1,4}`),
			rapid.StringMatching(`'[a-z "$=]{0,5}'`),
			rapid.StringMatching(`"[a-z '=;]{0,5}"`),
			rapid.StringMatching(`\\[ a-z"'=]`),
		)
		written := strings.Join(rapid.SliceOfN(part, 1, 4).Draw(rt, "parts"), "")
		text := "LEFT=1 X_TOKEN=" + written + " RIGHT=2"
		if words, err := exec.Command(bash, "-c", "set -- "+text+"; printf %s $#").Output(); err != nil || string(words) != "3" {
			rt.Fatalf("%q has %q words: %v", text, words, err)
		}
		if got, want := Text(text), "LEFT=1 X_TOKEN=*** RIGHT=2"; got != want {
			rt.Errorf("%q:\ngot  %q\nwant %q", text, got, want)
		}
	})
}

func TestValuesAreHiddenInText(t *testing.T) {
	v := ValuesOf([]string{"A_TOKEN=abcdefgh", "B_KEY=abcdefghij", "TOKENIZERS_PARALLELISM=false",
		"HOME=/home/someone", "C_KEY=", "D_SECRET"})
	pem := ValuesOf([]string{"SSH_KEY=-----BEGIN\r\nabcdefgh\nshort\n"})
	if got, want := strings.Join(pem.InLines([]string{"-----BEGIN", "abcdefgh", "short"}), " "), "*** *** short"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := v.In("abcdefghij abcdefgh false /home/someone xabcdefghx"), "*** *** false /home/someone x***x"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestQuotedHidesBeforeItCuts(t *testing.T) {
	for text, want := range map[string]string{
		"": `""`, "a\n": `"a\n"`, "12345678": `"12345678"`, "123456789": `"12345678"...`, "1234567é": `"1234567"...`,
		"A_KEY=x123456": `"A_KEY=**"...`, "a\xffb456789": `"a\xffb45678"...`,
	} {
		if got := Quoted(text, 8); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}
