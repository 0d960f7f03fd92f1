#!/usr/bin/env python3
"""Print the first NVRTC that is new enough; exit 1 when there is none.

Looks at $MEGALITH_NVRTC alone if set, else on the loader's path, in installed toolkits,
then in .venv, where install_deps.sh puts one. megalith itself does not look into .venv:
the scripts tell it by MEGALITH_NVRTC, with what `--path` prints.
"""
import ctypes
import glob
import os
import pathlib
import sys

root = pathlib.Path(__file__).resolve().parent.parent
if os.environ.get("MEGALITH_NVRTC"):
    candidates = [os.environ["MEGALITH_NVRTC"]]
else:
    candidates = ["libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12"]
    toolkits = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    toolkits += sorted(glob.glob("/usr/local/cuda*"), reverse=True)
    for toolkit in toolkits:
        for folder in ("lib64", "lib", "targets/x86_64-linux/lib"):
            candidates += sorted(glob.glob(f"{toolkit}/{folder}/libnvrtc.so*"))
    candidates += sorted(glob.glob(f"{root}/.venv/lib/python*/site-packages/nvidia/**/libnvrtc.so*",
                                   recursive=True))

for candidate in candidates:
    try:
        library = ctypes.CDLL(candidate)
        major, minor = ctypes.c_int(), ctypes.c_int()
        if library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)) == 0 \
                and (major.value, minor.value) >= (12, 8):
            print(candidate if "--path" in sys.argv else f"NVRTC {major.value}.{minor.value}: {candidate}")
            sys.exit(0)
    except (OSError, AttributeError):
        continue
sys.exit(1)
