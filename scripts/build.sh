#!/bin/sh
# Builds into build/ (or $MEGALITH_BUILD): everything, or the targets named. Sources are
# compiled in groups: a third of the time of one by one, for who builds once.
# With --fuzz as the first word: megalith-fuzz and the unit tests, with clang and its sanitizers,
# into build-fuzz/.
set -eu
cd "$(dirname "$0")/.."
build=${MEGALITH_BUILD:-build}
type=Release fuzz=OFF
if [ "${1:-}" = --fuzz ]; then
  shift
  build=$build-fuzz type=Fuzz fuzz=ON
  export CC=clang-19 CXX=clang++-19
fi
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE="$type" -DMEGALITH_FUZZ="$fuzz" \
  -DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=16 >"${TMPDIR:-/tmp}/megalith-cmake.$$" 2>&1 || {
  cat "${TMPDIR:-/tmp}/megalith-cmake.$$"
  exit 1
}
rm -f "${TMPDIR:-/tmp}/megalith-cmake.$$"
ninja -C "$build" "$@"
