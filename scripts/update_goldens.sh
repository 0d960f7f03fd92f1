#!/bin/sh
# Writes the emitted sources of the shipped pipelines to test/Goldens/*.cu; review
# with `git diff`. Takes the build folder, build/ by default. speculative_lookup.cu has the tensor unit of
# adaptive_speculative, too. The unit of passes that run whole stands in autoregressive.cu alone.
set -eu
cd "$(dirname "$0")/.."
megalith=${1:-build}/tools/megalith
golden() {
  pipeline=$1
  shift
  for unit; do
    "$megalith" compile pipelines/$pipeline.yaml --model models/demo --emit=$unit
  done >test/Goldens/$pipeline.cu
}
golden autoregressive cuda
golden speculative_lookup cuda-control cuda-tensors
golden adaptive_speculative cuda-control
