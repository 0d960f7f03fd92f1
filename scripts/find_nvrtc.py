#!/usr/bin/env python3
"""Print the first NVRTC that is new enough, or with `--linker` the nvJitLink to it; exit 1 when there is none.

NVRTC: looks at $MEGALITH_NVRTC alone if set, else on the loader's path, in installed toolkits,
then in .venv, where install_deps.sh puts one. nvJitLink: $MEGALITH_NVJITLINK alone if set, else the one
beside that NVRTC, then in .venv. megalith itself does not look into .venv: the scripts tell it by these
two variables, with what `--path` prints.
"""
import ctypes
import glob
import os
import pathlib
import sys

root = pathlib.Path(__file__).resolve().parent.parent


def in_venv(name):
    return sorted(glob.glob(f"{root}/.venv/lib/python*/site-packages/nvidia/**/{name}*", recursive=True))


def nvrtc_candidates():
    if os.environ.get("MEGALITH_NVRTC"):
        return [os.environ["MEGALITH_NVRTC"]]
    candidates = ["libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12"]
    toolkits = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    toolkits += sorted(glob.glob("/usr/local/cuda*"), reverse=True)
    for toolkit in toolkits:
        for folder in ("lib64", "lib", "targets/x86_64-linux/lib"):
            candidates += sorted(glob.glob(f"{toolkit}/{folder}/libnvrtc.so*"))
    return candidates + in_venv("libnvrtc.so")


def version(library, function):
    major, minor = ctypes.c_uint(), ctypes.c_uint()
    ok = getattr(library, function)(ctypes.byref(major), ctypes.byref(minor)) == 0
    return (major.value, minor.value) if ok else (0, 0)


def first(candidates, function, least):
    for candidate in candidates:
        try:
            found = version(ctypes.CDLL(candidate), function)
        except (OSError, AttributeError):
            continue
        if found >= least:
            return candidate, found
    return None, None


def loaded(name):
    """The file after a library that is loaded."""
    for line in open("/proc/self/maps"):
        path = line.split()[-1]
        if name in os.path.basename(path) and path.startswith("/"):
            return path
    return ""


path, found = first(nvrtc_candidates(), "nvrtcVersion", (12, 8))
what = "NVRTC"
if path and "--linker" in sys.argv:
    what = "nvJitLink"
    if os.environ.get("MEGALITH_NVJITLINK"):
        candidates = [os.environ["MEGALITH_NVJITLINK"]]
    else:
        beside = pathlib.Path(loaded("libnvrtc.so") or path).parent
        folders = [beside, beside.parent.parent / "nvjitlink/lib"]
        candidates = [str(f) for folder in folders for f in sorted(folder.glob("libnvJitLink.so*"))]
        candidates += in_venv("libnvJitLink.so")
    path, found = first(candidates, "nvJitLinkVersion", found)
if not path:
    sys.exit(1)
print(path if "--path" in sys.argv else f"{what} {found[0]}.{found[1]}: {path}")
