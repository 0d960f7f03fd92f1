#!/bin/sh
# Formats the C++ and CUDA sources with clang-format 19. `format.sh --check` changes nothing
# and fails where a file would change.
set -eu
cd "$(dirname "$0")/.."
case "${1:-}" in
--check) set -- --dry-run --Werror ;;
"") set -- -i ;;
*) echo "usage: scripts/format.sh [--check]" >&2 && exit 2 ;;
esac
git ls-files -z '*.cpp' '*.h' '*.cuh' '*.c' | xargs -0 -n 40 -P "$(nproc)" clang-format-19 "$@"
