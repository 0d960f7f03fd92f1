#!/bin/sh
# Installs what is missing, builds, and lets the demo model continue four prompts
# with adaptive speculative decoding: in one launch of one kernel, on a GPU or, in about
# a minute, on the CPU.
set -eu
cd "$(dirname "$0")/.."
scripts/install_deps.sh
scripts/build.sh megalith launch_counter
build=$(cd "${MEGALITH_BUILD:-build}" && pwd)
MEGALITH_NVRTC=$(python3 scripts/find_nvrtc.py --path)
MEGALITH_NVJITLINK=$(python3 scripts/find_nvrtc.py --path --linker)
export MEGALITH_NVRTC MEGALITH_NVJITLINK

demo() {
  "$build/tools/megalith" run pipelines/adaptive_speculative.yaml --model models/demo \
    --requests scripts/demo_requests.jsonl --format=text "$@"
}

echo
if [ -e /dev/nvidia0 ] || [ -e /dev/dxg ]; then
  counts=$(mktemp)
  trap 'rm -f "$counts"' EXIT
  status=0
  LD_PRELOAD="$build/tools/launch_counter/launch_counter.so" demo 2>"$counts" || status=$?
  python3 scripts/show_launches.py "$counts"
  exit $status
fi
demo --device=cpu --plan ctas=1
echo "no GPU here: the kernel's CUDA source, compiled for the CPU, ran with a fiber for each of its threads"
