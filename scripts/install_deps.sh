#!/bin/sh
# Installs what building and testing need, on Debian 12 or Ubuntu 24.04. Does
# nothing, and needs no network, when everything is there.
set -eu
cd "$(dirname "$0")/.."

packages="cmake ninja-build g++ ccache python3 python3-venv python3-dev llvm-19-dev llvm-19-tools
  libyaml-cpp-dev libfmt-dev libzstd-dev libcurl4-openssl-dev zlib1g-dev libgtest-dev
  nlohmann-json3-dev libboost-context-dev pkg-config clang-19 clang-format-19 clang-tidy-19 libclang-rt-19-dev"

missing=
for package in $packages; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing="$missing $package"
done
if [ -n "$missing" ]; then
  sudo=
  [ "$(id -u)" = 0 ] || sudo=sudo
  echo "installing:$missing"
  $sudo apt-get update -q
  # shellcheck disable=SC2086 # a list of words
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing
fi

# NVRTC 12.8 or newer and its linker, of an installed toolkit or of .venv.
if ! python3 scripts/find_nvrtc.py; then
  echo "installing NVRTC from the Python package nvidia-cuda-nvrtc into .venv"
  [ -x .venv/bin/pip ] || python3 -m venv .venv
  .venv/bin/pip install --quiet 'nvidia-cuda-nvrtc>=12.8'
  python3 scripts/find_nvrtc.py
fi
if ! python3 scripts/find_nvrtc.py --linker; then
  echo "installing nvJitLink from the Python package nvidia-nvjitlink into .venv"
  [ -x .venv/bin/pip ] || python3 -m venv .venv
  .venv/bin/pip install --quiet 'nvidia-nvjitlink>=12.8'
  python3 scripts/find_nvrtc.py --linker
fi

# What builds and tests the Python module. Without a network all else works.
if ! .venv/bin/python -c 'import nanobind, scikit_build_core, numpy, pytest, tokenizers, jinja2, starlette, uvicorn, openai' 2>/dev/null; then
  echo "installing Python packages for the module megalith and its tests into .venv"
  { [ -x .venv/bin/pip ] || python3 -m venv .venv; } &&
    .venv/bin/pip install --quiet 'scikit-build-core>=0.10' 'nanobind>=2.4' numpy pytest tokenizers 'jinja2>=3.1.6' starlette \
      uvicorn 'h11>=0.16' openai ||
    echo "warning: they could not be installed; scripts/run_tests.py will miss them" >&2
fi
