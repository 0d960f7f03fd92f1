#!/usr/bin/env python3
"""Tests of the benchmark's scripts. Those that need PyTorch are skipped without it; none
needs a GPU or a network."""
import contextlib
import importlib.util
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import common
import megalith
import plot
import pytorch_server
import verify_study
import weights
from common import BENCH, ROOT, Result

sys.path.insert(0, str(ROOT / "tools"))
from safetensors_io import decoder_shapes  # noqa: E402

HAVE_TORCH = all(importlib.util.find_spec(name) for name in ("torch", "transformers"))
TORCH_ONLY = unittest.skipUnless(HAVE_TORCH, "no PyTorch and transformers here")
PLOT_ONLY = unittest.skipUnless(importlib.util.find_spec("matplotlib"), "no matplotlib here")
INPUTS = BENCH / "inputs"  # of plot.py: a small trace, and tables with made-up times
TINY = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 128, "vocab_size": 300}

# Indices, and bits that a C++ program computed from the formula.
INDICES = (0, 1, 12345, 262143, (1 << 24) + 7, 5_000_000_000)
BITS = {
    ("model.embed_tokens.weight", (128256, 2048)):
        (0x3d1b, 0x3d19, 0x3c20, 0xbc87, 0x3cfe, 0xbc82),
    ("model.layers.0.mlp.down_proj.weight", (2048, 8192)):
        (0x3be9, 0x3b11, 0xbc4e, 0xbb82, 0x3c58, 0x3b04),
    ("model.norm.weight", (2048,)): (0x3f87, 0x3f73, 0x3f67, 0x3f69, 0x3f77, 0x3f86),
    ("model.layers.3.self_attn.q_proj.bias", (2048,)):
        (0xbd0e, 0x3c1a, 0xbd2f, 0xbd03, 0x3c36, 0x3d2b),
}

# Stands for `megalith bench`: ms per token is 1 ms and 1 more at each call.
FAKE = """#!{python}
import json, pathlib, sys
options = dict(o.split("=", 1) for o in sys.argv[3:] if "=" in o)
assert sys.argv[1] == "bench" and "--json" in sys.argv and pathlib.Path(options["--config"]).is_file()
if "--fail" in sys.argv:
    sys.exit("error: no such thing")
calls = pathlib.Path(__file__ + ".calls")
n = len(calls.read_text()) if calls.exists() else 0
calls.write_text("x" * (n + 1))
print("a line that is not JSON")
print(json.dumps({{"context": int(options["--context"]), "batch": int(options["--batch"]),
                  "ms_per_token": 1.0 + n, "floor_ms": 0.5, "percent_of_floor": 50.0,
                  "bandwidth_gb_s": 4000, "kernel_ms": 20.0 + 8 * n, "tokens": [1, 2, 3]}}))
"""


def script(name, *options):
    """A script in a process of its own, where no GPU shows: (status, stdout, stderr)."""
    run = subprocess.run([sys.executable, BENCH / name, *options], capture_output=True, text=True,
                         env=os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"})
    return run.returncode, run.stdout, run.stderr


def fake_megalith(folder):
    path = pathlib.Path(folder) / "megalith"
    path.write_text(FAKE.format(python=sys.executable))
    path.chmod(0o755)
    return str(path)


def tiny_shape(name):
    return common.find_shape(name)[2] | TINY | {"bos_token_id": 1, "eos_token_id": 2}


class Weights(unittest.TestCase):
    def test_known_elements(self):
        for (name, shape), expected in BITS.items():
            bits = tuple(weights.element_bits(name, shape, index) for index in INDICES)
            self.assertEqual(bits, expected, name)

    def test_prints_elements(self):
        status, out, _ = script("weights.py", "model.norm.weight", "2048", "0", "1")
        self.assertEqual((status, out), (0, "0 0x3f87 1.0546875\n1 0x3f73 0.94921875\n"))

    @TORCH_ONLY
    def test_torch_fills_the_same(self):
        import torch
        before, weights.CHUNK = weights.CHUNK, 1 << 8  # several chunks, the last one short
        try:
            for name, shape in (("a.weight", (37, 41)), ("a.bias", (700,)), ("norm", (700,))):
                for dtype in (torch.bfloat16, torch.float32):
                    tensor = torch.empty(shape, dtype=dtype)
                    weights.fill(tensor, name)
                    bits = tensor.to(torch.bfloat16).view(torch.int16).flatten().tolist()
                    expected = [weights.element_bits(name, shape, index)
                                for index in range(tensor.numel())]
                    self.assertEqual([bit & 0xFFFF for bit in bits], expected, name)
                    self.assertTrue(bool((tensor.to(torch.bfloat16).to(dtype) == tensor).all()))
        finally:
            weights.CHUNK = before


class Shapes(unittest.TestCase):
    # What the model cards say.
    PARAMETERS = {"llama-3.2-1b": 1_235_814_400, "llama-3.1-8b": 8_030_261_248,
                  "llama-60m": 59_576_576, "qwen3-0.6b": 596_049_920}

    def test_parameters(self):
        self.assertEqual(sorted(self.PARAMETERS), common.shape_names())
        for name, expected in self.PARAMETERS.items():
            count = 0
            for shape in decoder_shapes(common.find_shape(name)[2]).values():
                size = 1
                for extent in shape:
                    size *= extent
                count += size
            self.assertEqual(count, expected, name)

    @TORCH_ONLY
    def test_names_are_those_of_the_checkpoint(self):
        import torch
        import transformers
        for name in common.shape_names():
            config = common.find_shape(name)[2]
            with torch.device("meta"):
                model = transformers.AutoModelForCausalLM.from_config(
                    transformers.AutoConfig.for_model(**config))
            found = {key: tuple(value.shape) for key, value in model.named_parameters()}
            expected = {key: tuple(shape) for key, shape in decoder_shapes(config).items()}
            self.assertEqual(found, expected)


class Errors(unittest.TestCase):
    def check(self, name, *options, status, says):
        code, out, err = script(name, *options)
        self.assertEqual((code, out), (status, ""))
        self.assertIn(says, err)
        self.assertNotIn("Traceback", err)

    def test_arguments(self):
        self.check("compare.py", "--peers=eager,quick", status=2,
                   says="no peer `quick`; there are eager, reduce-overhead, max-autotune, cuda-graph")
        self.check("compare.py", "--batch=0", status=2, says="positive integers by comma")
        self.check("compare.py", "--tokens=0", status=2, says="must be at least 1")
        self.check("compare.py", "--shapes=gpt", status=1, says="`gpt` is neither a shape "
                   "(llama-3.1-8b, llama-3.2-1b, llama-60m, qwen3-0.6b) nor a file")
        self.check("compare.py", "--megalith=/nowhere/megalith", status=1,
                   says="no program `/nowhere/megalith` (--megalith)")

    def test_no_torch_or_no_gpu(self):
        says = "finds no CUDA device" if HAVE_TORCH else "the peers need PyTorch and transformers"
        self.check("peers.py", "--shape=llama-3.2-1b", status=1, says=says)
        self.check("compare.py", "--no-megalith", status=1, says=says)


class Formats(unittest.TestCase):
    def test_table(self):
        with tempfile.TemporaryDirectory() as folder:
            status, out, err = script("formats.py", "--shape=llama-3.2-1b", "--formats=bf16,awq", "--kv=bf16,fp8", "--rounds=2",
                                      f"--megalith={fake_megalith(folder)}", "--batch=2", "--prefill=128")
        self.assertEqual(status, 0, err)
        rows = [line for line in out.splitlines() if line.startswith("| ") and " ---" not in line][1:]
        self.assertEqual(len(rows), 8)
        self.assertEqual(rows[1], "| 128 | 2 | bf16 | fp8 | 8.000 | 0.500 | 6.2 | 1.000 |")
        self.assertEqual(rows[-1], "| prompt of 128 | 1 | awq | fp8 | 12.000 | | | 1.000 |")

    def test_arguments(self):
        status, out, err = script("formats.py", "--formats=fp9")
        self.assertEqual((status, out), (2, ""))
        self.assertIn("`fp9` is none of bf16, fp8-block", err)
        status, out, err = script("formats.py", "--rounds=0")
        self.assertEqual((status, out), (2, ""))
        self.assertIn("--tokens and --rounds must be at least 1", err)
        status, out, err = script("formats.py", "--pipeline=/nowhere.yaml")
        self.assertEqual((status, out, err), (1, "", "error: no pipeline file `/nowhere.yaml` (--pipeline)\n"))


class Megalith(unittest.TestCase):
    def test_bench(self):
        with tempfile.TemporaryDirectory() as folder:
            program = megalith.find(fake_megalith(folder))
            config = common.find_shape("llama-3.2-1b")[1]
            options = megalith.decode_options(config, 128, 2, 64)
            found = megalith.bench(program, "p.yaml", options, context=128, batch=2)
            self.assertEqual((found["ms"], found["floor_ms"]), (1.0, 0.5))
            options_prefill = megalith.prefill_options(config, 128)
            found = megalith.bench(program, "p.yaml", options_prefill, context=128, batch=1)
            self.assertEqual(megalith.prefill_ms(found), 12.0)
            with self.assertRaisesRegex(megalith.MegalithError, "no result for"):
                megalith.bench(program, "p.yaml", options, context=129)
            with self.assertRaisesRegex(megalith.MegalithError, "exit status 1 .*no such thing"):
                megalith.bench(program, "p.yaml", options + ["--fail"])

    def test_pipeline_is_there(self):
        path = ROOT / "pipelines/autoregressive.yaml"
        self.assertEqual(megalith.pipeline_at(path), path)
        with self.assertRaises(SystemExit):
            megalith.pipeline_at(ROOT / "pipelines/no.yaml")


class Tables(unittest.TestCase):
    RESULTS = [
        Result("s", "decode", 128, 1, "megalith", [1.0, 3.0, 1.5],
               more={"floor_ms": 0.75, "percent_of_floor": 50.0}),
        Result("s", "decode", 128, 1, "eager", [6.0, 6.0, 7.0], 2.0),
        Result("s", "decode", 128, 1, "cuda-graph", [3.0, 3.25, 2.0], 1.0),
        Result("s", "decode", 128, 2, "eager", [], note="failed: X"),
    ]

    def test_markdown(self):
        self.assertEqual(common.markdown(self.RESULTS).splitlines()[2:], [
            "| s | 128 | 1 | bf16 | megalith | 1.500 | 1.000 to 3.000 |  "
            "| 50.0 % of the floor of 0.750 ms |",
            "| s | 128 | 1 | bf16 | eager | 6.000 | 6.000 to 7.000 | 4.00 |  |",
            "| s | 128 | 1 | bf16 | **cuda-graph** | 3.000 | 2.000 to 3.250 | 2.00 |  |",
            "| s | 128 | 2 | bf16 | eager |  |  |  | failed: X |"])

    def test_csv(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "r.csv"
            common.write_csv(path, self.RESULTS)
            lines = path.read_text().splitlines()
        self.assertEqual(lines[1], "s,decode,128,1,bf16,megalith,1.50000,1.00000,3.00000,3,1.000,"
                         "0.0,0.75,,50.0,")
        self.assertEqual(lines[4], "s,decode,128,2,bf16,eager,,,,0,,0.0,,,,failed: X")


class Plot(unittest.TestCase):
    def folder(self, **files):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        for path in INPUTS.iterdir():
            text = files.get(path.stem, path.read_text())
            if text is not None:
                (pathlib.Path(folder.name) / path.name).write_text(text)
        return folder.name

    def refused(self, name, folder):
        with self.assertRaises(plot.Missing) as caught:
            plot.FIGURES[name](folder)
        return str(caught.exception).replace(folder, "DIR")

    def test_what_is_missing_is_said(self):
        control = (INPUTS / "control.csv").read_text()
        self.assertEqual(self.refused("launches", self.folder(control=None)),
                         "DIR/control.csv: No such file or directory; bench/measure_claims.py makes it")
        self.assertEqual(self.refused("launches", self.folder(control=control.split("\n")[0])),
                         "DIR/control.csv: it has no rows")
        renamed = control.replace("host_synchronizations", "syncs")
        self.assertEqual(self.refused("launches", self.folder(control=renamed)),
                         "DIR/control.csv: there is no column `host_synchronizations`")
        self.assertEqual(self.refused("latencies", self.folder(latency=control)),
                         "DIR/latency.csv: there is no column `ttft_p95_ms`")
        self.assertEqual(self.refused("time-per-token", self.folder(bench=None)),
                         "DIR/bench.csv: No such file or directory; bench/measure_claims.py makes it")
        ticks = "device,ttft_p50_ticks,control,host_kernel_launches\nreference,1,resident,\n"
        self.assertEqual(self.refused("launches", self.folder(control=ticks)),
                         "DIR/control.csv: nothing is in the column `host_kernel_launches`; a GPU fills it")
        trace = (INPUTS / "blocks.jsonl").read_text()
        lines = trace.splitlines()
        for broken in ("\n".join(lines[:-1]), ""):
            with self.subTest(broken[:20]):
                folder = self.folder()
                (pathlib.Path(folder) / "blocks.jsonl").write_text(broken)
                self.assertEqual(self.refused("blocks", folder), "DIR/blocks.jsonl: not a whole trace")
        folder = self.folder()
        (pathlib.Path(folder) / "blocks.jsonl").write_text(trace.replace("block_size.ema", "ema"))
        self.assertEqual(self.refused("acceptance", folder),
                         "DIR/blocks.jsonl: no tick has the gauge `block_size.ema`")
        (pathlib.Path(folder) / "blocks.json").write_text('{"device": "x"}')
        self.assertEqual(self.refused("pages", folder), "DIR/blocks.json: there is no member `shape`")

    def test_blocks_are_those_that_the_kernel_counted(self):
        run = plot.Run(INPUTS)
        counts = [count for by_tick in run.blocks().values() for count in by_tick.values()]
        metrics = json.loads((INPUTS / "blocks.jsonl").read_text().splitlines()[-1])["metrics"]
        self.assertEqual(sum(proposed for proposed, _ in counts), metrics["tokens_proposed"])
        self.assertEqual(sum(right for _, right in counts), metrics["tokens_accepted"])
        self.assertTrue(run.pressure())
        self.assertEqual([run.alpha(request) for request in range(3)], ["0.95", "0.3", "0.95"])

    @PLOT_ONLY
    def test_figures(self):
        first, again = self.folder(), self.folder()
        for folder in (first, again):
            status, out, err = script("plot.py", f"--data={INPUTS}", f"--out={folder}/figures")
            self.assertEqual((status, out), (0, f"7 figures in {folder}/figures\n"), err)
        for name in plot.FIGURES:
            svg = (pathlib.Path(first) / f"figures/{name}.svg").read_text()
            self.assertEqual(svg, (pathlib.Path(again) / f"figures/{name}.svg").read_text())
            dark = (pathlib.Path(first) / f"figures/{name}-dark.svg").read_text()
            self.assertIn("#0D1117", dark)
            self.assertNotIn("#000000", dark.replace('fill="#000000"', ""))
            self.assertNotIn("<dc:date>", svg)
            self.assertTrue((pathlib.Path(first) / f"figures/{name}.png").read_bytes().startswith(b"\x89PNG"))

    @PLOT_ONLY
    def test_numbers_of_latencies_can_be_read(self):
        """No text of the figure stands on another one."""
        import matplotlib
        matplotlib.use("Agg")
        for data in INPUTS, BENCH.parent / "docs/figures":
            with matplotlib.rc_context(plot.STYLE):
                figure = plot.FIGURES["latencies"](data)
                figure.canvas.draw()
                texts = [text for text in figure.findobj(matplotlib.text.Text) if text.get_visible() and text.get_text()]
                boxes = [(text.get_text(), text.get_window_extent()) for text in texts]
                self.assertGreater(len(boxes), 20)
                for place, (one, box) in enumerate(boxes):
                    for other, its in boxes[:place]:
                        apart = (box.x0 >= its.x1 - 1 or its.x0 >= box.x1 - 1 or box.y0 >= its.y1 - 1 or its.y0 >= box.y1 - 1)
                        self.assertTrue(apart, (one, other))

    @PLOT_ONLY
    def test_errors_of_the_script(self):
        self.assertEqual(script("plot.py", "--data=/nowhere", "--out=/tmp/megalith-no-figures")[::2],
                         (1, "error: /nowhere/control.csv: No such file or directory; "
                          "bench/measure_claims.py makes it\n"))
        status, _, err = script("plot.py", "--only=speed")
        self.assertEqual(status, 2)
        self.assertIn("no figure `speed`; there are launches, ", err)


class Arrivals(unittest.TestCase):
    def test_same_as_of_megalith(self):
        """The numbers of test/Unit/Api/LiveTimesTest.cpp."""
        found = pytorch_server.open_arrivals(4, 2, 64, 512, 7)
        self.assertEqual([prompt for _, prompt in found], [422, 354, 450, 169])
        self.assertEqual(found[0][0], 0)
        self.assertAlmostEqual(found[1][0], 0.52946483, 8)
        self.assertAlmostEqual(found[3][0], 1.331258432, 8)
        for one, faster in zip(found, pytorch_server.open_arrivals(4, 8, 64, 512, 7)):
            self.assertAlmostEqual(one[0], 4 * faster[0], 12)

    def test_spread(self):
        self.assertIsNone(pytorch_server.spread([]))
        self.assertEqual(pytorch_server.spread([5, 1, 9]), {"p50": 5, "p95": 8.6, "p99": 8.92, "max": 9})


@TORCH_ONLY
class Peers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        import torch
        import peers
        torch.set_num_threads(1)
        with contextlib.redirect_stderr(io.StringIO()):
            peers.open_device("cpu")

    def model(self, name, dtype="float32"):
        import peers
        with contextlib.redirect_stderr(io.StringIO()):
            return peers.build_model(tiny_shape(name), "cpu", dtype)

    def test_decoding_is_greedy(self):
        """Steps from a cache give what a forward over the same K and V and all tokens gives."""
        import copy
        import peers
        import torch
        import transformers
        for shape in ("llama-3.2-1b", "qwen3-0.6b"):
            model, tokens = self.model(shape), {}
            for attention in ("sdpa", "grouped"):
                decoder = peers.Decoder(model, 3, 5, 4, attention)
                step, _, _ = decoder.prepare("eager")
                tokens[attention] = [decoder.first.clone()]
                for _ in range(4):
                    step()
                    tokens[attention].append(decoder.tokens.clone())
            fed = torch.cat(tokens["grouped"], 1)
            self.assertTrue(torch.equal(torch.cat(tokens["sdpa"], 1), fed))
            self.assertGreater(len(fed.unique()), 3)
            decoder.reset()
            cache = transformers.DynamicCache(config=model.config)
            for index, layer in enumerate(decoder.cache.layers):
                cache.update(layer.keys[:, :, :5].clone(), layer.values[:, :, :5].clone(), index)
            model.set_attn_implementation("sdpa")
            logits = model(input_ids=fed[:, :-1], past_key_values=copy.deepcopy(cache)).logits
            self.assertTrue(torch.equal(logits.argmax(-1), fed[:, 1:]))

    def test_server_is_greedy(self):
        """Requests that share slots and come late give what each gives alone in transformers."""
        import torch
        for shape in ("llama-3.2-1b", "qwen3-0.6b"):
            model = self.model(shape)
            server = pytorch_server.Server(pytorch_server.Slots(model, 2, 16 + 5), 16, "eager", 8)
            prompts = [torch.tensor(megalith.prompt(length, TINY["vocab_size"], number))
                       for number, length in enumerate((3, 16, 8, 9, 1))]
            for prefills, due in ((1, [0, 0, 0, 0.01, 0.02]), (2, [0] * 5)):
                served = server.serve(prompts, due, 5, prefills)
                for prompt, (tokens, times) in zip(prompts, served):
                    fed = torch.cat([prompt, torch.tensor(tokens)])[None]
                    model.set_attn_implementation("sdpa")
                    best = model(input_ids=fed[:, :-1]).logits[0, len(prompt) - 1:].argmax(-1)
                    self.assertEqual(tokens, best.tolist())
                    self.assertEqual(times, sorted(times))

    def test_server_prints_what_megalith_prints(self):
        with tempfile.TemporaryDirectory() as folder:
            (shape := pathlib.Path(folder) / "tiny.json").write_text(json.dumps(tiny_shape("llama-3.2-1b")))
            status, out, err = script("pytorch_server.py", f"--shape={shape}", "--device=cpu", "--slots=2",
                                      "--requests=3", "--prompts=3,8", "--tokens=3", "--loads=0.5", "--pad=8",
                                      "--busy")
            self.assertEqual(status, 0, err)
            lines = [json.loads(line) for line in out.splitlines()]
            self.assertEqual([(line["load"], line["busy"]) for line in lines],
                             [(None, False), (None, True), (0.5, False), (0.5, True)])
            for line in lines:  # test/Driver/bench-live.test has the same
                self.assertEqual(" ".join(line), "part device shape server load rate busy slots requests prompts "
                                 "tokens seed seconds requests_per_s tokens_per_s ttft_ms itl_ms")

    def test_prefill_is_causal(self):
        import peers
        import torch
        model = self.model("llama-3.2-1b")
        work = peers.Prefill(model, 33)
        best, layers = work.prepare("eager")[0](work.ids)
        model.set_attn_implementation("eager")
        out = model(input_ids=work.ids)
        self.assertEqual(best.item(), out.logits[0, -1].argmax().item())
        torch.testing.assert_close(layers[1][0], out.past_key_values.layers[1].keys)

    def test_check_tokens(self):
        import check_tokens
        import torch
        model = self.model("qwen3-0.6b", "bfloat16")
        exact = self.model("qwen3-0.6b")
        config, tokens = tiny_shape("qwen3-0.6b"), []
        prompt = megalith.prompt(3, config["vocab_size"])
        for _ in range(6):
            ids = torch.tensor([prompt + tokens])
            tokens.append(exact(input_ids=ids).logits[0, -1].argmax().item())
        with contextlib.redirect_stderr(io.StringIO()):
            right = check_tokens.check(model, config, 3, tokens)
            self.assertEqual((right.count, right.exact, right.wrong), (6, 6, []))
            worst = exact(input_ids=torch.tensor([prompt + tokens])).logits[0, 5].argmin().item()
            tokens[3] = worst
            wrong = check_tokens.check(model, config, 3, tokens)
        self.assertIn(3, wrong.wrong)

    def test_compare(self):
        with tempfile.TemporaryDirectory() as folder:
            (shape := pathlib.Path(folder) / "tiny.json").write_text(
                json.dumps(tiny_shape("qwen3-0.6b")))
            options = (f"--shapes={shape}", "--device=cpu", "--peers=eager", "--context=16",
                       f"--megalith={fake_megalith(folder)}", f"--out={folder}/out",
                       "--tokens=2")
            status, out, err = script("compare.py", *options, "--repeats=3", "--check-tokens")
            self.assertEqual(status, 1, err)  # the tokens of this `megalith` are not greedy
            self.assertIn("| tiny | 16 | 1 | bf16 | megalith | 2.000 | 1.000 to 3.000 |", out)
            self.assertIn("of the floor of 0.500 ms; tokens wrong |", out)
            self.assertIn("0 of 3 tokens are the argmax in fp32, 0 in bf16; WRONG: tokens 0", err)
            saved = json.loads((pathlib.Path(folder) / "out/results.json").read_text())
            self.assertEqual([len(result["times"]) for result in saved["results"]], [3, 3])
            self.assertEqual((pathlib.Path(folder) / "out/results.md").read_text() + "\n", out)
            status, out, err = script("compare.py", *options, "--megalith-options=--fail")
            self.assertEqual(status, 1)
            self.assertIn("| megalith |  |  |  | failed: exit status 1", out)
            self.assertIn("error: no such thing", err)

    def test_lengths_of_a_run(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "lengths"
            for text, lengths, gamma in (("3 0 1\n8", [3, 0, 1, 8], None), ("[1, 2]", [1, 2], None),
                                         ('{"accepted": [4, 2], "gamma": 8}\n{"accepted": 0}\n', [4, 2, 0], 8)):
                path.write_text(text)
                self.assertEqual(verify_study.load_lengths(str(path)), (lengths, gamma), text)
            for text, error in (("1.5", "`1.5` is no length"), ("[true]", "`True` is no length"),
                                ("", "there are no lengths in it")):
                path.write_text(text)
                errors = io.StringIO()
                with self.assertRaises(SystemExit), contextlib.redirect_stderr(errors):
                    verify_study.load_lengths(str(path))
                self.assertIn(error, errors.getvalue())


if __name__ == "__main__":
    unittest.main()
