#!/bin/sh
# Writes the emitted sources of the shipped pipelines to test/Goldens/*.cu; review
# with `git diff`. Takes the build folder, build/ by default. speculative_lookup.cu has the
# tensor unit of adaptive_speculative, too.
set -eu
cd "$(dirname "$0")/.."
megalith=${1:-build}/tools/megalith
golden() { "$megalith" compile pipelines/$1.yaml --model models/demo --emit=$2 -o test/Goldens/$1.cu; }
golden autoregressive cuda
golden speculative_lookup cuda
golden adaptive_speculative cuda-control
