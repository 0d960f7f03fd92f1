# Run with:  lit.py --param build=BUILD_DIR [--param filecheck=DIR] test
# (ninja check-lit does it). `build` holds the tools; `filecheck` holds FileCheck, not
# and split-file.
import os
import subprocess
import sys

import lit.util

# Workers get the format from a module, not from this file.
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from measured import Measured

config.name = "megalith"
config.test_format = Measured(execute_external=False)
config.suffixes = [".ir", ".test", ".yaml"]
config.excludes = ["Unit", "Inputs", "Fuzz"]
config.test_source_root = os.path.dirname(os.path.abspath(__file__))

build = os.path.abspath(lit_config.params.get("build", os.path.join(config.test_source_root, "../build")))
config.test_exec_root = os.path.join(build, "test-lit")
filecheck = lit_config.params.get("filecheck", "/usr/lib/llvm-19/bin")

# Kernels for the CPU are compiled in a new folder each time, of which no object tells anything: ccache must not ask for it.
config.environment["PATH"] = os.pathsep.join(
    [os.path.join(build, "tools"), build, filecheck, *filter(os.path.isdir, ["/usr/lib/ccache"]), os.environ.get("PATH", "")]
)
config.environment["CCACHE_NOHASHDIR"] = "1"
for name in ("CCACHE_DIR", "HOME", "TMPDIR", "CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH", "MEGALITH_NVRTC", "MEGALITH_NVJITLINK"):
    if name in os.environ:
        config.environment[name] = os.environ[name]

# Those that are in .venv only: run_tests.py has set the variables, who runs lit by hand has not.
for variable, options in ("MEGALITH_NVRTC", []), ("MEGALITH_NVJITLINK", ["--linker"]):
    if variable not in os.environ:
        found = subprocess.run([sys.executable, os.path.join(config.test_source_root, "../scripts/find_nvrtc.py"), "--path",
                                *options], capture_output=True, text=True)
        if found.returncode == 0:
            config.environment[variable] = found.stdout.strip()

# Kernels that tests compile; kept between runs. $MEGALITH_TEST_KERNELS: a folder that outlives the build folder.
config.environment["MEGALITH_CACHE_DIR"] = os.environ.get("MEGALITH_TEST_KERNELS") or os.path.join(build, "test-kernels")

root = os.path.dirname(config.test_source_root)
# `%pick(A,B)`: A, and in the long set (`--param long=1`) B. Words without commas.
isLong = lit_config.params.get("long", "0") == "1"
# Kernels for the CPU run for a second. The long set has them as users have them, and so have tests of what users see.
config.environment["MEGALITH_HOST_QUICK"] = "" if isLong else "1"
config.substitutions += [
    (r"%pick\(([^,()]*),([^,()]*)\)", r"\2" if isLong else r"\1"),
    # The longer name first: substitution is textual.
    ("%megalith-opt", "megalith-opt"),
    ("%megalith", "megalith"),
    ("%FileCheck", "FileCheck"),
    ("%exactly", "FileCheck --strict-whitespace --match-full-lines"),
    ("%pipelines", os.path.join(root, "pipelines")),
    ("%models", os.path.join(root, "models")),
    ("%root", root),
    ("%build", build),
]
for tool, feature in (("megalith", "megalith"), ("megalith-opt", "megalith-opt")):
    if lit.util.which(tool, config.environment["PATH"]):
        config.available_features.add(feature)

# Headers of NVTX that the build found.
try:
    cache = open(os.path.join(build, "CMakeCache.txt")).read().splitlines()
except OSError:
    cache = []
for line in cache:
    name, _, value = line.partition("=")
    if name.startswith("MEGALITH_NVTX_INCLUDE:") and value and not value.endswith("-NOTFOUND"):
        config.available_features.add("nvtx")
        config.substitutions.append(("%nvtx", value))
