package main

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"ddpbatch/internal/usage"
)

func TestParseOptionsReadsEveryOption(t *testing.T) {
	o, err := parseOptions(strings.Fields("--model gpt,mlp --ranks 1 --quick"), io.Discard)
	if err != nil || !slices.Equal(o.models, []string{"gpt", "mlp"}) || !slices.Equal(o.ranks, []int{1}) || o.Launches != 3 {
		t.Errorf("%+v, %v", o, err)
	}
	if o, err = parseOptions([]string{"--ranks", "1"}, io.Discard); err != nil || len(o.models) != len(models) {
		t.Errorf("by default: %+v, %v", o, err)
	}
}

func TestParseOptionsRefusesBadValues(t *testing.T) {
	for args, want := range map[string]string{
		"--model resnet":          `-model: "resnet" is not one of dense, mlp, cnn, gpt`,
		"--ranks 3":               `-ranks: "3" is not a number from 1 to 2`,
		"--ddpbatch /nonexistent": "-ddpbatch: exec",
	} {
		_, err := parseOptions(strings.Fields(args), io.Discard)
		var misused *usage.Error
		if !errors.As(err, &misused) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}
