#!/bin/sh
# Installs what is missing, builds, and runs every test that needs no GPU. The last
# line says `N passed, N failed`; the exit code is 0 only when nothing failed.
# `check.sh --long`: more schedules, shapes, mutants and random models, and the unit tests without sanitizers, too; it
# takes several times as long. With --write-table the run puts what it cost into CONTRIBUTING.md.
set -eu
cd "$(dirname "$0")/.."
plain=all
for option; do
  case $option in
  --long) plain="all unit-tests" ;;
  --write-table) ;;
  *) echo "error: unknown argument $option; there are --long and --write-table" >&2 && exit 2 ;;
  esac
done
scripts/install_deps.sh
scripts/build.sh $plain
scripts/build.sh --fuzz
exec python3 scripts/run_tests.py "${MEGALITH_BUILD:-build}" "$@"
