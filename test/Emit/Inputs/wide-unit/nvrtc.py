#!/usr/bin/env python3
"""Compile a text that includes headers of device/ as megalith does, and print what ptxas says, its remarks among it:

    nvrtc.py ROOT OUT.cubin UNIT.cu [option of NVRTC]...     writes OUT.ptx, too
    nvrtc.py --link OUT.cubin UNIT.cubin...

megalith itself keeps ptxas's remarks to itself (lib/Jit/Compile.cpp). $MEGALITH_NVRTC and $MEGALITH_NVJITLINK: the libraries.
"""
import ctypes
import os
import pathlib
import sys


def strings(texts):
    return (ctypes.c_char_p * len(texts))(*[text.encode() for text in texts])


def output(size_of, get, handle):
    size = ctypes.c_size_t()
    size_of(handle, ctypes.byref(size))
    text = ctypes.create_string_buffer(max(1, size.value))
    get(handle, text)
    return text.raw


def headers(root, unit):
    named = {}
    for folder, prefix in (("device", ""), ("device/wide", ""), ("device/cuda", ""), ("include/megalith/Contract", "Contract/")):
        named |= {f"megalith/{prefix}{file.name}": file.read_text() for file in sorted((root / folder).iterdir())
                  if file.suffix in (".h", ".def", ".cuh")}
    return named | {file.name: file.read_text() for file in pathlib.Path(unit).parent.glob("*.h")}


def compile_unit(root, out, unit, options):
    nvrtc = ctypes.CDLL(os.environ.get("MEGALITH_NVRTC") or "libnvrtc.so.13")
    texts = headers(pathlib.Path(root), unit)
    program = ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), pathlib.Path(unit).read_text().encode(), os.path.basename(unit).encode(), len(texts),
                             strings(list(texts.values())), strings(list(texts)))
    options = ["--gpu-architecture=sm_90a", "--std=c++20", "-default-device", "--generate-line-info", "--ptxas-options=-v", *options]
    failed = nvrtc.nvrtcCompileProgram(program, len(options), strings(options))
    print(output(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program).split(b"\0")[0].decode(), flush=True)
    if failed:
        sys.exit(1)
    pathlib.Path(out).write_bytes(output(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program))
    ptx = output(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program)
    pathlib.Path(out).with_suffix(".ptx").write_bytes(ptx.split(b"\0")[0])


def link(out, units):
    library = ctypes.CDLL(os.environ.get("MEGALITH_NVJITLINK") or "libnvJitLink.so.13")

    def call(name):
        version = (ctypes.c_uint(), ctypes.c_uint())
        library.nvJitLinkVersion(ctypes.byref(version[0]), ctypes.byref(version[1]))
        return getattr(library, f"__{name}_{version[0].value}_{version[1].value}")

    handle, options = ctypes.c_void_p(), ["-arch=sm_90a", "-verbose"]
    call("nvJitLinkCreate")(ctypes.byref(handle), len(options), strings(options))
    for unit in units:
        data = pathlib.Path(unit).read_bytes()
        call("nvJitLinkAddData")(handle, 1, data, ctypes.c_size_t(len(data)), unit.encode())
    failed = call("nvJitLinkComplete")(handle)
    for log in ("Error", "Info"):
        print(output(call(f"nvJitLinkGet{log}LogSize"), call(f"nvJitLinkGet{log}Log"), handle).split(b"\0")[0].decode())
    if failed:
        sys.exit(1)
    pathlib.Path(out).write_bytes(output(call("nvJitLinkGetLinkedCubinSize"), call("nvJitLinkGetLinkedCubin"), handle))


if sys.argv[1] == "--link":
    link(sys.argv[2], sys.argv[3:])
else:
    compile_unit(*sys.argv[1:4], sys.argv[4:])
