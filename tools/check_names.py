#!/usr/bin/env python3
"""Names that mean something to C++, to CUDA or to the kernel's own code, in every place where a pipeline or a model
file gives a name: what the language accepts must compile.

    tools/check_names.py                a choice of words (half a minute; a test runs it)
    tools/check_names.py --full         every word in every role (20 minutes)
    tools/check_names.py --nvrtc 2      two of the kernels through NVRTC, too (20 s each)

Words: all identifiers of device/, what an emitted kernel itself says, the keywords of C++20, names of CUDA and of the
standard library, and macros of compilers. Roles: state, stage, metric, gauge, field (declared and inferred), local,
binder, param, policy, its state, argument and output, weight (vector and matrix), value of a graph, config name, the
names of model, pipeline and model file. A word that the language keeps for itself must be refused at its line.

The sources are checked with `-fsyntax-only` as the CPU executor compiles them, so that no macro, keyword or
declaration in sight can be missed. Failing inputs stay in --keep.
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).resolve().parent.parent
CONFIG = '{"hidden_size": 32, "num_hidden_layers": 2, "head_dim": 16, "vocab_size": 37}'

KEYWORDS = """alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t char8_t class
co_await co_return co_yield compl concept const const_cast consteval constexpr constinit continue decltype default
delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline int long mutable
namespace new noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires
return short signed sizeof static static_assert static_cast struct switch template this thread_local throw true try
typedef typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq
final override import module typeof restrict""".split()
CUDA = """blockIdx blockDim threadIdx gridDim warpSize __shared__ __device__ __global__ __host__ __constant__ __managed__
__restrict__ __launch_bounds__ __grid_constant__ __forceinline__ __noinline__ __align__ __CUDA_ARCH__ __CUDACC__
__CUDACC_RTC__ __syncthreads __syncwarp __threadfence __ldg __popc __ffs __clz __fadd_rn __fmul_rn __half
__nv_bfloat16 dim3 char1 uchar4 short2 ushort2 int2 int4 uint3 uint4 long2 ulong4 longlong2 float2 float4 double2 half
half2 min max exp expf log logf log1pf sqrt sqrtf rsqrt rsqrtf sin cos tanh tanhf erff fabsf fmaxf fminf fmaf pow abs
floor ceil round trunc isnan isinf clock clock64 printf assert malloc free memcpy memset atomicAdd atomicCAS
atomicExch atomicMax tex1D surf2Dread cudaStream_t cudaError cudaSuccess cudaStreamDefault cudaStreamPerThread
cudaGraph_t cudaTextureObject_t texture surface nvcuda wmma CUDART_VERSION CUDARTAPI NV_IF_TARGET NV_IS_DEVICE
NV_PROVIDES_SM_90 cooperative_groups cub thrust cuda cute cutlass""".split()
STANDARD = """std size_t ptrdiff_t nullptr_t byte move forward swap array vector string tuple pair get make_pair optional
variant any function bind ref thread mutex atomic numeric_limits is_same enable_if declval integral_constant true_type
initializer_list begin end iterator allocator exception iostream cout endl terminate abort exit NULL EOF INT_MAX
UINT_MAX FLT_MAX DBL_MAX INFINITY NAN M_PI CHAR_BIT offsetof va_list va_arg va_start va_end va_copy errno stdin stdout
stderr linux unix i386 main uint8_t uint32_t int64_t uintptr_t bool_t""".split()
MACROS = """__LINE__ __FILE__ __func__ __FUNCTION__ __cplusplus __DATE__ __VA_ARGS__ __GNUC__ __clang__ __linux__ __unix__
__x86_64__ __SIZE_TYPE__ __INT_MAX__ __has_include __attribute__ __builtin_popcount __asm__ __extension__ __typeof__
__int128 _Bool _Float16 _Atomic _Static_assert _Pragma _x __x a__b x_ x__ _ __ ___ defined once line pragma define
include""".split()


def identifiers(text):
    """Of C++ text, without comments and strings."""
    text = re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', " ", text, flags=re.S)
    return re.findall(r"[A-Za-z_]\w*", text)


def source_words():
    """Of the device code, and of kernels."""
    words = set()
    for path in [*(ROOT / "device").rglob("*"), *(ROOT / "test/Goldens").glob("*.cu")]:
        if path.is_file():
            words.update(identifiers(path.read_text()))
    return words


def language_words():
    """What the language keeps for itself: refused, or of another meaning in that place."""
    words = {"fault", "cancel", "deadline", "layer", "logits", "position", "layers", "head_dim", "vocab"}
    for name in ("Sema/Builtins", "Sema/ModelFunctions", "IR/Elementwise"):
        words.update(re.findall(r'"(\w+)"', (ROOT / f"include/megalith/{name}.def").read_text()))
    return words


# --- the pipelines ----------------------------------------------------------------

STAGE_ROLES = ["state", "stage", "metric", "field", "inferred", "local", "binder", "sequence"]
# Roles of which a kernel has few.
SINGLE_ROLES = ["model", "pipeline", "graph", "policy", "policy_state", "policy_arg", "policy_out", "config"]
GRAPH_ROLES = ["vector", "value", "matrix", "product"]
ROLES = STAGE_ROLES + ["param"] + SINGLE_ROLES + GRAPH_ROLES
OWN = "zz"  # names that this script needs itself begin so


class Name(str):
    """`{x:q}`: as a whole scalar of YAML."""
    def __format__(self, spec):
        return f"'{self!s}'" if spec == "q" and self.lower() == "null" else str(self)


def pipeline(n):
    """The text for lists of names by role; gauges have the names of the fields that are traced."""
    count = len(n["state"])
    out = [f"pipeline: {n['pipeline'][0]:q}", "models:", f"  {n['model'][0]:q}: {{graph: model.yaml}}", "params:",
           "  slots: 2", "  rows_per_pass: 16"]
    out += [f"  {p:q}: 1" for p in n["param"]]
    out += ["request:", f"  {OWN}_rate: f32 = 0.0"]
    out += [f"  {f:q}: i32 = 0" for f in n["field"]]
    out += [f"  {s:q}: token[4]" for s in n["sequence"]]
    out += ["states:", f"  fault: {OWN}_FAILED"]
    states = [Name(OWN + "_FIRST")] + n["state"] + [Name(OWN + "_LAST")]
    for i, (s, follows) in enumerate(zip(states, states[1:])):
        out.append(f"  {s:q}: {{{'initial' if i == 0 else 'slot'}: true, next: [{follows:q}]}}")
    out += [f"  {OWN}_LAST: {{slot: true, next: [{OWN}_LAST, {OWN}_DONE]}}", f"  {OWN}_DONE: {{terminal: true}}",
            f"  {OWN}_FAILED: {{terminal: true}}"]
    out += ["kv:", f"  {n['model'][0]:q}: {{pages: 8, page_tokens: 16, on_full: fail}}"]
    policy, state, arg, output = (n["policy" + part][0] for part in ("", "_state", "_arg", "_out"))
    out += ["policies:", f"  {policy:q}:", "    per: request", f"    state: {{{state:q}: i32 = 0}}",
            f"    observe({arg}):", f"      - {state:q}: {state} + {arg}", "    outputs:", f"      {output:q}: {state} * 2"]
    out += ["stages:", f"  {OWN}_admit:", f"    on: {OWN}_FIRST", "    do: []", f"    goto: {states[1]:q}"]
    for i in range(count):
        w, f, b, s = n["local"][i], n["field"][i], n["binder"][i], n["sequence"][i]
        out += [f"  {n['stage'][i]:q}:", f"    on: {n['state'][i]:q}", "    do:", f"      - {w:q}: budget + 1",
                f"      - {s:q}: ([last] + {s})[:min({w}, 4)] if {w} > 2 else ngram_lookup(tokens, width=2)",
                f"      - {f:q}: max(-{w}, 1) / {f} + {w} % {f} - {w} * {f} + count({b} in 0..{w}, {b} > {w})",
                f"      - {n['inferred'][i]:q}: prefix_while({b} in 0..len({s}), {s}[{b}] == last) + {w} + prompt_len",
                f"      - {OWN}_rate: 0.5 * ratio({w}, {f}) / {OWN}_rate - tiers({w}, [[8, 0.5], [0, 2.0]])",
                f"      - count: {n['metric'][i]} += {w}", f"      - trace: {f:q}",
                f"    goto: {states[i + 2]:q}"]
    reads = " + ".join(n["inferred"])
    out += [f"  {OWN}_last:", f"    on: {OWN}_LAST", "    do:", f"      - {OWN}_next: argmax({n['model'][0]}([last]))",
            f"      - {policy}.observe: {reads}", f"      - trace: {policy}.{output}",
            f"      - {OWN}_n: append({OWN}_next)", f"      - count: {OWN}_m += {OWN}_n",
            f"    goto: {OWN}_DONE if finished else {OWN}_LAST"]
    return "\n".join(out) + "\n"


def model(n):
    h = n["config"][0]
    out = [f"model: {n['graph'][0]:q}", "config:", f"  {h:q}: hidden_size", "  layers: num_hidden_layers",
           "  head_dim: head_dim", "  vocab: vocab_size", "weights:",
           f"  {OWN}_embed: {{shape: '[vocab, {h}]', from: e}}", "  layer:"]
    names = [Name(OWN + "_" + part) for part in ("q", "k", "v", "o")]
    out += [f"    {w:q}: {{shape: '[{h}, {h}]', from: '{{i}}.m{i}'}}" for i, w in enumerate(names + n["matrix"])]
    out += [f"    {w:q}: {{shape: '[{h}]', from: '{{i}}.v{i}'}}" for i, w in enumerate(n["vector"])]
    x, last = OWN + "_x", OWN + "_x"
    out += ["graph:", f"  - {x}: {OWN}_embed[tokens]", "  - repeat: layer", "    do:"]
    for i, (v, w) in enumerate(zip(n["value"], n["vector"])):
        out.append(f"      - {v:q}: {f'rms_norm({last}, {w}, 1e-5)' if i == 0 else f'{last} * {w} + silu({last})'}")
        last = v
    for v, w in zip(n["product"], n["matrix"]):
        out.append(f"      - {v:q}: matmul({last}, {w}) + {last}")
        last = v
    out += [f"      - {OWN}_a: attention(matmul({last}, {names[0]}), matmul({last}, {names[1]}), matmul({last}, {names[2]}))",
            f"      - {x}: {x} + matmul({OWN}_a, {names[3]})", f"  - logits: matmul({x}, {OWN}_embed)"]
    return "\n".join(out) + "\n"


SIZES = {**{r: 24 for r in STAGE_ROLES}, "param": 24, **{r: 1 for r in SINGLE_ROLES}, "vector": 16, "value": 16,
         "matrix": 6, "product": 6}
# What shares a scope: there each word has one role at a time.
SCOPES = [["state"], ["stage"], ["metric"], ["pipeline"], ["graph"], ["policy_state", "policy_arg", "policy_out"],
          ["field", "inferred", "local", "binder", "sequence", "param", "model", "policy"],
          ["config", "vector", "value", "matrix", "product"]]


SMALL = {r: min(2, size) for r, size in SIZES.items()}  # where one name is looked at


def own_names(sizes):
    return {r: [Name(f"{OWN}_{r}{i}") for i in range(sizes[r])] for r in ROLES}


def batches(words, roles, sizes):
    """Names by role, until each word has had each of the roles."""
    left = {}
    for i, role in enumerate(roles):  # each begins elsewhere, so that the roles of a scope differ
        at = i * len(words) // len(roles)
        left[role] = words[at:] + words[:at]
    while any(left.values()):
        batch = own_names(sizes)
        for scope in SCOPES:
            taken = set()
            for role in scope:
                if role not in left:
                    continue
                mine = [w for w in left[role] if w not in taken][:sizes[role]]
                left[role] = [w for w in left[role] if w not in mine]
                taken.update(mine)
                batch[role] = mine + batch[role][len(mine):]
        yield batch


# --- compiling --------------------------------------------------------------------

class Bench:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        headers = folder / "include/megalith"
        headers.mkdir(parents=True)
        shutil.copytree(ROOT / "include/megalith/Contract", headers / "Contract")
        for path in [*(ROOT / "device").glob("*"), *(ROOT / "device/cpu").glob("*")]:
            if path.is_file():
                shutil.copy(path, headers / path.name)
        shutil.copy(ROOT / "device/cpu/Primitives.cuh", headers / "Primitives.cuh")
        self.compiler = [args.cxx, "-std=c++20", "-w", "-D__CUDA_ARCH__=900", "-I../include", "-x"]
        (folder / "checkpoint").mkdir()
        # Precompiled, which g++ finds by itself.
        self.run(folder / "checkpoint", *self.compiler, "c++-header", headers / "Device.cuh")
        (folder / "checkpoint/config.json").write_text(CONFIG)

    def run(self, place, *command):
        return subprocess.run(command, cwd=place, capture_output=True, text=True, errors="replace")

    def megalith(self, place, *options):
        return self.run(place, self.args.megalith, "compile", "pipeline.yaml", "--model", "../checkpoint", *options)

    def check(self, name, batch, nvrtc=False, refused=None):
        """None, or what went wrong. `refused`: a word that may be refused, at a line that has it."""
        place = self.folder / name
        place.mkdir()
        (place / "pipeline.yaml").write_text(pipeline(batch))
        (place / "model.yaml").write_text(model(batch))
        made = self.megalith(place, "-o", "kernel.cu")
        if refused and made.returncode == 1:
            first = re.match(r"(?:\./)?(\w+\.yaml):(\d+):\d+: error: ", made.stderr)
            line = first and (place / first[1]).read_text().split("\n")[int(first[2]) - 1]
            if line and refused in re.findall(r"\w+", line):
                shutil.rmtree(place)
                return None
        if made.returncode == 0:
            made = self.run(place, *self.compiler, "c++", "-fsyntax-only", "kernel.cu")
        if made.returncode == 0 and nvrtc:
            made = self.megalith(place, "--emit=cubin", "--arch=sm_90a", "-o", "kernel.cubin")
        if made.returncode != 0:
            return f"{place}: {made.stderr.strip()[:1500]}"
        shutil.rmtree(place)
        return None


def jobs_of(args):
    """(batch, through NVRTC, the word that may be refused)"""
    keeps = language_words()
    words = {*source_words(), *KEYWORDS, *CUDA, *STANDARD, *MACROS}
    words = [Name(w) for w in sorted(words - keeps)]
    if not args.full:  # those that were a list once, and some of each kind
        words = [Name(w) for w in sorted(set(KEYWORDS + MACROS + words[::12]) - keeps)]
    several = [r for r in ROLES if r not in SINGLE_ROLES]
    for i, batch in enumerate(batches(words, several, SIZES)):
        yield batch, i < args.nvrtc, None
    if args.full:
        for batch in batches(words, SINGLE_ROLES, SMALL):
            yield batch, False, None
    for role in ROLES:
        for word in sorted(keeps) if args.full else ["len", "if", "layer"]:
            batch = own_names(SMALL)
            batch[role][0] = Name(word)
            yield batch, False, word


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megalith", default="megalith")
    parser.add_argument("--cxx", default="g++")
    parser.add_argument("--full", action="store_true", help="every word in every role")
    parser.add_argument("--nvrtc", type=int, default=0, metavar="N", help="compile the first N kernels for sm_90a, too")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--keep", help="folder for inputs that fail")
    args = parser.parse_args()
    found = shutil.which(args.megalith)
    if not found:
        parser.error(f"no program `{args.megalith}`; give --megalith")
    args.megalith = str(pathlib.Path(found).absolute())
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(args, pathlib.Path(args.keep or scratch).absolute())
        with ThreadPoolExecutor(args.jobs) as pool:
            runs = [pool.submit(bench.check, f"kernel{i}", *job) for i, job in enumerate(jobs_of(args))]
            failed = [text for text in (run.result() for run in runs) if text]
    for text in failed[:20]:
        print(text)
    print(f"{len(runs) - len(failed)} of {len(runs)} as they should be")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
