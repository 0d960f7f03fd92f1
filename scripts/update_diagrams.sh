#!/bin/sh
# Draws the states of each shipped pipeline anew: docs/figures/states/NAME.dot, and NAME.svg where Graphviz is installed.
#   scripts/update_diagrams.sh [build directory]
set -eu
cd "$(dirname "$0")/.."
build=${1:-build}
out=docs/figures/states
mkdir -p $out
for pipeline in pipelines/*.yaml; do
  name=$(basename "$pipeline" .yaml)
  "$build/tools/megalith" inspect "$pipeline" --dot >"$out/$name.dot"
  # The comments name the version of Graphviz.
  if command -v dot >/dev/null; then
    dot -Tsvg "$out/$name.dot" | sed '/^<!--.*-->$/d; /^<!-- Generated/,/-->$/d' >"$out/$name.svg"
  fi
done
