package jobfile

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"pgregory.net/rapid"
)

func TestOverridesAreCompletedLevelByLevel(t *testing.T) {
	for begun, want := range map[string][]string{
		"na":                      {"name="},
		"slu":                     {"slurm."},
		"train.opt":               {"train.optimizer."},
		"train.optimizer.w":       {"train.optimizer.weight_decay="},
		"launch.mode=":            {"launch.mode=agent", "launch.mode=task"},
		"launch.mode=t":           {"launch.mode=task"},
		"launch.mode=x":           nil,
		"launch.nproc_per_node=g": {"launch.nproc_per_node=gpu"},
		"checkpoint.async=":       {"checkpoint.async=true", "checkpoint.async=false"},
		"slurm.contiguous=":       {"slurm.contiguous=true", "slurm.contiguous=false"},
		"slurm.wait_all_nodes=":   {"slurm.wait_all_nodes=0", "slurm.wait_all_nodes=1"},
		"slurm.partition=":        nil, // partitions depend on the site, and only Slurm knows them
		"train.mode=d":            {"train.mode=ddp", "train.mode=dp"},
		"sweep.m":                 {"sweep.mode=", "sweep.mpi."},
		"sweep.mode=":             {"sweep.mode=product", "sweep.mode=zip"},
		"sweep.train.optimizer.l": {"sweep.train.optimizer.lr="},
		"sweep.se":                {"sweep.setup."},
		"sweep.setup.":            {"sweep.setup.env."}, // all elements have the same batch script
		"sweep.sl":                nil,
		"sweep.sc":                nil,
		"sweep.sw":                nil,
		"sweep.sweep.m":           nil,
		"sweep.launch.mode=":      nil, // its values are lists
		"slurm.chain":             {"slurm.chain="},
		"slurm.chain=":            nil,
		"launch.po":               {"launch.ports="},
		"script":                  {"script_template="},
		"name=":                   nil,
		"setup.env.":              nil, // it takes any name
		"container.ru":            {"container.runtime="},
		"nonesuch.":               nil,
		"name.":                   nil, // a key, and not a table
		"slurm=":                  nil,
		"a.b.c=d":                 nil,
		".":                       nil,
		"..=":                     nil,
	} {
		if got := CompleteSet(begun); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", begun, got, want)
		}
	}
	top := CompleteSet("")
	if !slices.Contains(top, "train.") || !slices.Contains(top, "name=") {
		t.Errorf("at the top: %q", top)
	}
}

// TestEveryKeyIsReached follows all completions, and checks that they reach every key of the schema.
func TestEveryKeyIsReached(t *testing.T) {
	keys := 0
	var walk func(n *node, begun string)
	walk = func(n *node, begun string) {
		offered := CompleteSet(begun)
		for name, child := range n.keys {
			switch {
			case child.isTable() && slices.Contains(offered, begun+name+"."):
				walk(child, begun+name+".")
			case !child.isTable() && slices.Contains(offered, begun+name+"="):
				keys++
			default:
				t.Errorf("%s is not offered after %q", name, begun)
			}
		}
	}
	walk(schema(), "")
	if keys < 150 {
		t.Errorf("only %d keys are offered: the walk is wrong", keys)
	}
}

// TestWordsAreTaken: a key accepts each word that is offered for it, as --set reads it. A key that accepts anything has no list of words.
func TestWordsAreTaken(t *testing.T) {
	lists := 0
	eachKey(schema(), nil, func(key toml.Key, n *node) {
		words := wordsOf(strings.Join(key, "."))
		if len(words) > 0 {
			lists++
		}
		for _, word := range words {
			var v any = word
			if b, err := strconv.ParseBool(word); err == nil && len(word) > 1 {
				v = b
			} else if i, err := strconv.ParseInt(word, 10, 64); err == nil {
				v = i
			}
			if err := n.read(emptyJob(), key, v); err != nil {
				if err := n.read(emptyJob(), key, word); err != nil {
					t.Errorf("%s=%s: %v", key, word, err)
				}
			}
		}
	})
	if lists < 40 {
		t.Errorf("only %d keys have words: the walk is wrong", lists)
	}
}

func eachKey(n *node, at toml.Key, do func(key toml.Key, n *node)) {
	for name, child := range n.keys {
		key := below(at, name)
		if child.read != nil {
			do(key, child)
		}
		if child.item != nil {
			continue // its keys cannot be set alone
		}
		eachKey(child, key, do)
	}
}

// TestTrainersWordsAreThese: for a wrong word, the trainer lists the valid ones, and they are the words that are offered here.
func TestTrainersWordsAreThese(t *testing.T) {
	const job = "schema = 1\nname = \"a\"\n[train.data]\nkind = \"csv\"\npath = \"x.csv\"\n[train.model]\nkind = \"mlp\"\n"
	for _, key := range []string{
		"train.mode", "train.precision", "train.loss", "train.ddp.compress", "train.model.activation", "train.data.header",
		"train.data.remainder",
	} {
		_, _, err := Parse("job.toml", "/jobs", []byte(job), []string{key + "=nonesuch"})
		if err == nil {
			t.Errorf("%s=nonesuch is taken", key)
			continue
		}
		words := wordsOf(key)
		if said := strings.Count(err.Error(), `"`); len(words) == 0 || said < 2*len(words) {
			t.Errorf("%s: %v, and %q are offered", key, err, words)
		}
		for _, word := range words {
			if !strings.Contains(err.Error(), strconv.Quote(word)) {
				t.Errorf("%s=%s is offered; %v", key, word, err)
			}
		}
	}
}

// TestCompletionsGoOn: whatever was typed, each completion continues it, and the key before "=" is in the schema.
func TestCompletionsGoOn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		begun := rapid.OneOf(rapid.String(), rapid.StringMatching(`(sweep\.)?(train|slurm|launch)\.[a-z_.]{0,12}=?[a-z]?`)).Draw(t, "begun")
		for _, way := range CompleteSet(begun) {
			if !strings.HasPrefix(way, begun) {
				t.Fatalf("%q does not complete %q", way, begun)
			}
			key, _, hasValue := strings.Cut(way, "=")
			if hasValue && takenNode(key) == nil {
				key = strings.TrimPrefix(key, "sweep.")
			}
			if n := takenNode(key); hasValue && (n == nil || n.isTable()) {
				t.Fatalf("%q: there is no such key", way)
			}
		}
	})
}
