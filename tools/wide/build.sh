#!/bin/sh
# Builds into the folder $1 what main.cu describes. It needs nvcc, NVRTC and nvJitLink.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
inputs=$root/test/Emit/Inputs/wide-unit
mkdir -p "$1"
python3 "$inputs/nvrtc.py" "$root" "$1/unit.cubin" "$root/tools/wide/unit.cu" --relocatable-device-code=true --maxrregcount=168
python3 "$inputs/nvrtc.py" "$root" "$1/entry.cubin" "$root/tools/wide/entry.cu" --ptxas-options=-ewp
python3 "$inputs/nvrtc.py" --link "$1/wide.cubin" "$1/entry.cubin" "$1/unit.cubin"
nvcc -std=c++17 -O2 -cudart static "$root/tools/wide/main.cu" -o "$1/wide"
