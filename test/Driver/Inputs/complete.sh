# What the completion script of $1 offers for command lines, as bash cuts them into words.
source "$1"
compopt() { :; }
try() {
  COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
  _megalith
  echo "[$*]: ${COMPREPLY[*]}"
}
try megalith ru
try megalith run --dev
try megalith run --device = c
try megalith run autoregr
try megalith help sw
try megalith cache --cl
