#!/bin/sh
# Builds into the folder $1 what main.cu and attend_main.cu describe. It needs nvcc, NVRTC and nvJitLink.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
nvrtc=$root/test/Emit/Inputs/wide-unit/nvrtc.py
mkdir -p "$1"
# Of one unit and its entry, with options: a cubin.
build() {
  name=$1 unit=$2 entry=$3
  shift 3
  python3 "$nvrtc" "$root" "$name.unit.cubin" "$root/tools/wide/$unit" --relocatable-device-code=true --maxrregcount=168 "$@"
  python3 "$nvrtc" "$root" "$name.entry.cubin" "$root/tools/wide/$entry" --ptxas-options=-ewp "$@"
  python3 "$nvrtc" --link "$name.cubin" "$name.entry.cubin" "$name.unit.cubin"
}
build "$1/wide" unit.cu entry.cu
build "$1/attend64" attend.cu attend_entry.cu -DDIM=64 -DHEADS=32 -DKV_HEADS=8
build "$1/attend128" attend.cu attend_entry.cu -DDIM=128 -DHEADS=32 -DKV_HEADS=8
build "$1/attend96" attend.cu attend_entry.cu -DDIM=96 -DHEADS=32 -DKV_HEADS=32
build "$1/attend256" attend.cu attend_entry.cu -DDIM=256 -DHEADS=8 -DKV_HEADS=4
for program in wide:main attend:attend_main; do
  nvcc -std=c++17 -O2 -cudart static "$root/tools/wide/${program#*:}.cu" -o "$1/${program%:*}"
done
