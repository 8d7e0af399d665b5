package main

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

func TestParseOptions(t *testing.T) {
	o, err := parseOptions(strings.Fields("--model gpt,mlp --ranks 1 --quick"), io.Discard)
	if err != nil || !slices.Equal(o.models, []string{"gpt", "mlp"}) || !slices.Equal(o.ranks, []int{1}) || o.launches != 3 {
		t.Errorf("%+v, %v", o, err)
	}
	if o, err = parseOptions(strings.Fields("--ranks 1 --quick --launches=9"), io.Discard); err != nil || o.launches != 9 || len(o.models) != len(models) {
		t.Errorf("what is named beside --quick does not stay: %+v, %v", o, err)
	}
	// enough for an interval of 95 %
	if o, err = parseOptions([]string{"--ranks", "1"}, io.Discard); err != nil || o.launches != 7 {
		t.Errorf("%+v, %v", o, err)
	}
}

func TestParseOptionsRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"--model resnet":          `-model: there is no "resnet"; it is one of dense, mlp, cnn, gpt`,
		"--ranks 3":               `-ranks: "3" is no number from 1 to 2`,
		"--launches 0":            "-launches is 0; it must be 1 to 1000",
		"--ddpbatch /nonexistent": "-ddpbatch: stat /nonexistent",
		"mlp":                     `"mlp" is not expected`,
		"--nosuch":                "flag provided but not defined",
	} {
		_, err := parseOptions(strings.Fields(args), io.Discard)
		var usage *usageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}
