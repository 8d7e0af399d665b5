#compdef ddpbatch
# Completion of ddpbatch for zsh. In ~/.zshrc, after compinit: source <(ddpbatch completion zsh)
# Or put it into a file _ddpbatch in a folder of $fpath.

_ddpbatch() {
  local program=${(Q)words[1]} line help
  local -a answer ways shown close
  # Asks the program that was typed, if it is a program and not an alias.
  [[ ${program[1,2]} == \~/ ]] && program=$HOME/${program[3,-1]}
  (( $+commands[$program] )) || [[ $program == */* && -x $program ]] || program=ddpbatch
  answer=("${(@f)$(command $program complete zsh "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null </dev/null)}")
  for line in "${(@)answer[2,-1]}"; do
    ways+=("${line%%$'\t'*}")
    help=${line#*$'\t'}
    shown+=("${ways[-1]}${help:+  -- $help}")
  done
  [[ $answer[1] == *open ]] && close=(-S '')
  (( $#ways )) && compadd -V ddpbatch -l "$close[@]" -d shown -a ways
  case $answer[1] in
    files*) compset -P '--*='; _files ;;
    folders*) compset -P '--*='; _files -/ ;;
  esac
}

if [[ $funcstack[1] == _ddpbatch ]]; then
  _ddpbatch "$@"
else
  compdef _ddpbatch ddpbatch
fi
