# Completion of ddpbatch for bash. In ~/.bashrc: source <(ddpbatch completion bash)

_ddpbatch() {
  local program=$1 rest=${COMP_LINE:0:COMP_POINT} words=() answer=() gap word i
  # The words as they were typed: bash has also split them at "=" and ":".
  for ((i = 0; i <= COMP_CWORD; i++)); do
    gap=${rest%%[![:space:]]*}
    rest=${rest#"$gap"}
    word=${COMP_WORDS[i]}
    ((i < COMP_CWORD)) || word=$rest # up to the cursor
    rest=${rest#"$word"}
    if ((i == 0)) || [[ -n $gap ]]; then words+=("$word"); else words[${#words[@]} - 1]+=$word; fi
  done
  # Asks the program that was typed, if it is a program and not an alias.
  [[ ${program:0:2} == \~/ ]] && program=$HOME/${program:2}
  type -P -- "$program" >/dev/null || program=ddpbatch
  COMPREPLY=()
  mapfile -t answer < <("$program" complete bash "${words[@]:1}" 2>/dev/null </dev/null)
  case ${answer[0]-} in
    files*) compopt -o default ;;
    folders*) compopt -o dirnames ;;
  esac
  case ${answer[0]-} in
    *open) compopt -o nospace ;;
  esac
  # If bash has split the word, it expects only the last part, $2.
  word=${words[${#words[@]} - 1]}
  word=${word%"$2"}
  for ((i = 1; i < ${#answer[@]}; i++)); do
    rest=${answer[i]%%$'\t'*}
    COMPREPLY+=("${rest#"$word"}")
  done
}

complete -F _ddpbatch ddpbatch
