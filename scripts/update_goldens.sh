#!/bin/sh
# Writes the emitted sources of the shipped pipelines to test/Goldens/*.cu; review
# with `git diff`. Takes the build folder, build/ by default.
set -eu
cd "$(dirname "$0")/.."
megalith=${1:-build}/tools/megalith
for name in autoregressive speculative_lookup adaptive_speculative; do
  "$megalith" compile pipelines/$name.yaml --model models/demo -o test/Goldens/$name.cu
done
