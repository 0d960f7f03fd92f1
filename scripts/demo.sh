#!/bin/sh
# Installs what is missing, builds, and lets the demo model continue four prompts
# with adaptive speculative decoding: on a GPU in one launch of one kernel, else on
# the reference executor.
set -eu
cd "$(dirname "$0")/.."
scripts/install_deps.sh
scripts/build.sh megalith launch_counter
build=$(cd "${MEGALITH_BUILD:-build}" && pwd)

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
demo --device=reference
echo "no GPU here: the reference executor interpreted the pipeline, without launches and synchronisations"
