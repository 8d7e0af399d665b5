# Completion of ddpbatch for fish. To install: ddpbatch completion fish >~/.config/fish/completions/ddpbatch.fish

function __ddpbatch_complete
    set -l words (commandline --cut-at-cursor --current-process --tokenize)
    set -l word (commandline --cut-at-cursor --current-token)
    # Asks the program that was typed, if it is a program and not an alias.
    set -l program (string replace --regex '^~/' "$HOME/" -- $words[1])
    set -e words[1]
    command --query -- $program; or set program ddpbatch
    set -l answer (command $program complete fish $words "$word" 2>/dev/null </dev/null)
    string join \n -- $answer[2..]
    # For --flag=PATH fish expects the whole word, and completes only the path.
    set -l flag (string match --regex -- '^--[^=]*=' $word)
    set -l path (string replace -- "$flag" '' $word)
    switch "$answer[1]"
        case 'files*'
            string join \n -- "$flag"(__fish_complete_path $path)
        case 'folders*'
            string join \n -- "$flag"(__fish_complete_directories $path '')
    end
end

complete --command ddpbatch --no-files --keep-order --arguments '(__ddpbatch_complete)'
