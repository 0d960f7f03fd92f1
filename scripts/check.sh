#!/bin/sh
# Installs what is missing, builds, and runs every test that needs no GPU. The last
# line says `N passed, N failed`; the exit code is 0 only when nothing failed.
# `check.sh --long`: more schedules, shapes, mutants and random models; it takes several times as long.
set -eu
cd "$(dirname "$0")/.."
case "$*" in
"" | --long) ;;
*) echo "error: unknown argument $*; there is --long" >&2 && exit 2 ;;
esac
scripts/install_deps.sh
scripts/build.sh
scripts/build.sh --fuzz
exec python3 scripts/run_tests.py "${MEGALITH_BUILD:-build}" "$@"
