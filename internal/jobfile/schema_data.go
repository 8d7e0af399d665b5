package jobfile

import (
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
)

// dataRows are the keys of train.data.
func dataRows() []row {
	idx, csv, npy, generated := []string{"mnist"}, []string{"csv"}, []string{"npy"}, []string{"generated"}
	return []row{
		{key: "train.data", kind: func(j *Job) string { return j.Train.Data.Kind }},
		{key: "train.data.kind", read: oneOf(func(j *Job) *string { return &j.Train.Data.Kind }, "mnist", "generated", "cifar10", "csv", "npy", "text"), need: true},
		{key: "train.data.images", read: line(func(j *Job) *string { return &j.Train.Data.Images }), kinds: idx, need: true},
		{key: "train.data.labels", read: line(func(j *Job) *string { return &j.Train.Data.Labels }), kinds: idx, need: true},
		{key: "train.data.files", read: list(1, "one line of text", isLine, func(j *Job) *[]string { return &j.Train.Data.Files }), kinds: []string{"cifar10"}, need: true},
		{key: "train.data.path", read: line(func(j *Job) *string { return &j.Train.Data.Path }), kinds: []string{"csv", "text"}, need: true},
		{key: "train.data.target", read: list(1, "one line of text", isLine, func(j *Job) *[]string { return &j.Train.Data.Target }), kinds: csv},
		{key: "train.data.header", read: oneOf(func(j *Job) *string { return &j.Train.Data.Header }, "auto", "yes", "no"), kinds: csv},
		{key: "train.data.delimiter", read: text("one character", isRune, func(j *Job) *string { return &j.Train.Data.Delimiter }), kinds: csv},
		{key: "train.data.inputs", read: inputs, kinds: []string{"npy", "generated"}},
		{key: "train.data.targets", read: line(func(j *Job) *string { return &j.Train.Data.TargetFile }), kinds: npy, need: true},
		{key: "train.data.rows", read: whole(1, most, func(j *Job) *int { return &j.Train.Data.Rows }), kinds: generated},
		{key: "train.data.outputs", read: whole(1, most, func(j *Job) *int { return &j.Train.Data.Outputs }), kinds: generated},
		{key: "train.data.noise", read: number("a number of at least 0", notNegative, func(j *Job) *float64 { return &j.Train.Data.Noise }), kinds: generated},
		{key: "train.data.train", read: rowRange(func(j *Job) *string { return &j.Train.Data.Train })},
		{key: "train.data.eval", read: rowRange(func(j *Job) *string { return &j.Train.Data.Eval })},
		{key: "train.data.shuffle", read: truth(func(j *Job) *bool { return &j.Train.Data.Shuffle })},
		{key: "train.data.remainder", read: oneOf(func(j *Job) *string { return &j.Train.Data.Remainder }, "pad", "drop", "uneven")},
		{key: "train.data.cache", read: line(func(j *Job) *string { return &j.Train.Data.Cache }), kinds: []string{"mnist", "csv"}},
	}
}

// inputs reads the file of .npy inputs, or the number of generated ones.
func inputs(j *Job, key toml.Key, v any) error {
	if j.Train.Data.Kind == "npy" {
		return line(func(j *Job) *string { return &j.Train.Data.InputFile })(j, key, v)
	}
	return whole(1, most, func(j *Job) *int { return &j.Train.Data.Inputs })(j, key, v)
}

func isRune(s string) bool { return len([]rune(s)) == 1 && isLine(s) || s == "\t" }

// rowRange reads rows of a data set, "first:past-the-last".
func rowRange(to func(*Job) *string) reader {
	return text(`rows as "first:past-the-last", such as "0:9000"`, isRowRange, to)
}

func isRowRange(s string) bool {
	a, b, ok := strings.Cut(s, ":")
	first, errA := strconv.ParseUint(a, 10, 64)
	past, errB := strconv.ParseUint(b, 10, 64)
	return ok && errA == nil && errB == nil && first < past && past <= most
}
