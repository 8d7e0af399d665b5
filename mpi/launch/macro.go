package launch

import (
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// LocalRankMacro stands for a worker's LOCAL_RANK in the arguments of its command, as torchrun has it.
const LocalRankMacro = "${local_rank}"

// localRankMacro matches it in both of its forms, as Python's string.Template has them. A second dollar before it makes it text.
var localRankMacro = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\$?\$(?:\{local_rank\}|local_rank\b)`) })

// commandOf is the command of one worker: its name, and its arguments with the macro replaced.
func (c AgentConfig) commandOf(p Place) []string {
	command := append([]string(nil), c.Command...)
	rank := strconv.Itoa(p.LocalRank)
	for i := 1; i < len(command); i++ {
		command[i] = localRankMacro().ReplaceAllStringFunc(command[i], func(found string) string {
			if text, ok := strings.CutPrefix(found, "$$"); ok {
				return "$" + text
			}
			return rank
		})
	}
	return command
}
