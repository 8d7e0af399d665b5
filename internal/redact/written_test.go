package redact

import (
	"slices"
	"testing"
)

func TestFindWritten(t *testing.T) {
	for text, want := range map[string]string{
		"export WANDB_API_KEY=0123456789abcdef":          "WANDB_API_KEY",
		`HF_TOKEN="hf_abcdefghij" python train.py`:       "HF_TOKEN",
		"A=1 B_SECRET='s3cr3t s3cr3t'":                   "B_SECRET",
		"--api-key=abcdefghij":                           "--api-key",
		"export A_TOKEN=$(cat t); export B_KEY=12345abc": "B_KEY",
		"export HF_TOKEN=$(cat ~/.token)":                "",
		"export HF_TOKEN=`cat token`":                    "",
		"export HF_TOKEN=$TOKEN":                         "",
		`export HF_TOKEN="${TOKEN}"`:                     "",
		"export SSH_KEY=/home/ann/.ssh/id":               "",
		"export SSH_KEY_FILE=ann-and-bobs-key":           "",
		"export TOKENIZERS_PARALLELISM=falsefalse":       "",
		"--tokenizer=bert-base-uncased":                  "",
		"--max-tokens=4096000000":                        "",
		"HF_TOKEN=short":                                 "",
		"HF_TOKEN=":                                      "",
		"LR=0.123456789":                                 "",
		"":                                               "",
	} {
		if got := FindWritten(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestWordsHidesWhatFollowsAFlag(t *testing.T) {
	for _, c := range []struct{ words, want []string }{
		{[]string{"x", "--api-key", "sk-abcdefgh", "--n", "1"}, []string{"x", "--api-key", "***", "--n", "1"}},
		{[]string{"--hf-token=abc", "A_KEY=b c"}, []string{"--hf-token=***", "A_KEY=***"}},
		{[]string{"--token", "$HF_TOKEN"}, []string{"--token", "$HF_TOKEN"}},
		{[]string{"--max-tokens", "123456789"}, []string{"--max-tokens", "123456789"}},
		{[]string{"--key-file", "abcdefghij", "--token"}, []string{"--key-file", "abcdefghij", "--token"}},
		{[]string{"api-key", "abcdefghij"}, []string{"api-key", "abcdefghij"}},
		{[]string{"--use_auth_token", "--output_dir", "out"}, []string{"--use_auth_token", "--output_dir", "out"}},
		{[]string{"--csv-img-key", "filepath", "--monkey-patch", "enabled-all"},
			[]string{"--csv-img-key", "filepath", "--monkey-patch", "enabled-all"}},
		{[]string{"--password", "hunter2", "--db-password", "Pa$word", "--password-file", "x"},
			[]string{"--password", "***", "--db-password", "***", "--password-file", "x"}},
		{[]string{"bash", "-c", "exec python t.py --api-key sk-abcdefgh --id $SLURM_JOB_ID"},
			[]string{"bash", "-c", "exec python t.py --api-key *** --id $SLURM_JOB_ID"}},
		{[]string{"sh", "-c", `x --password 'hunter 2' --hf_token "$T" --token "hf_abcdefgh"`},
			[]string{"sh", "-c", `x --password *** --hf_token "$T" --token ***`}},
		{[]string{}, []string{}},
	} {
		if got := Words(c.words); !slices.Equal(got, c.want) || got == nil {
			t.Errorf("%q: %q, want %q", c.words, got, c.want)
		}
	}
}
