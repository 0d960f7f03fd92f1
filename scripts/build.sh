#!/bin/sh
# Builds into build/ (or $MEGALITH_BUILD): everything, or the targets named.
set -eu
cd "$(dirname "$0")/.."
build=${MEGALITH_BUILD:-build}
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release >"${TMPDIR:-/tmp}/megalith-cmake.$$" 2>&1 || {
  cat "${TMPDIR:-/tmp}/megalith-cmake.$$"
  exit 1
}
rm -f "${TMPDIR:-/tmp}/megalith-cmake.$$"
ninja -C "$build" "$@"
