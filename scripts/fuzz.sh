#!/bin/sh
# Fuzzes everything that reads a user's file: fuzz.sh [TARGET...] [--seconds N] [--jobs N].
# Installs what is missing, builds megalith-fuzz and runs it; see docs/fuzzing.md.
set -eu
cd "$(dirname "$0")/.."
scripts/install_deps.sh
scripts/build.sh --fuzz
exec python3 scripts/fuzz.py --binary "${MEGALITH_BUILD:-build}-fuzz/test/Fuzz/megalith-fuzz" "$@"
