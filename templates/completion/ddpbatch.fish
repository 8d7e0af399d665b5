# Completion of ddpbatch for fish. As ~/.config/fish/completions/ddpbatch.fish: ddpbatch completion fish >THAT-FILE

function __ddpbatch_complete
    set -l words (commandline --cut-at-cursor --current-process --tokenize)
    set -l word (commandline --cut-at-cursor --current-token)
    # The program that was typed answers, if it is one and no alias.
    set -l program (string replace --regex '^~/' "$HOME/" -- $words[1])
    set -e words[1]
    command --query -- $program; or set program ddpbatch
    set -l answer (command $program complete fish $words "$word" 2>/dev/null </dev/null)
    string join \n -- $answer[2..]
    # Of --flag=PATH fish wants all, and completes the path alone.
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
