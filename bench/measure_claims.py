#!/usr/bin/env python3
"""Measure what the figures show: sweeps of a shape with random weights, and of the demo model.

    measure_claims.py --out DIR

Needs a GPU and a built `megalith`, and nothing of Python's but its standard library. Interrupted,
the same command goes on. plot.py draws from DIR.
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import time

import megalith
from common import BENCH, ROOT, fail, progress

PLAIN, LOOKUP = "autoregressive", "speculative_lookup"
WATERMARK = 0.85  # of the pool of pipelines/adaptive_speculative.yaml
PAGE_TOKENS = 16
# α of drafts, for the map of speed-ups; the last one: of the requests in turn.
PROFILES = ("0.95", "0.9", "0.8", "0.7", "0.5", "0.3", "0.95,0.3")
PROMPTS = ("In the beginning God created the heaven and the earth.\n",
           "Of the tribe of Juda were sealed twelve thousand. Of the tribe of Reuben were sealed ",
           "O give thanks unto the LORD; for he is good: for his mercy endureth for ever.\n",
           "And it came to pass in those days, that there went out a decree")


class Measuring:
    def __init__(self, args):
        self.args, self.out = args, pathlib.Path(args.out)
        self.program = megalith.find(args.megalith)
        self.gpu = args.device == "cuda"
        self.pipelines = ROOT / "pipelines"
        # Without a GPU no large shape: the demo model stands for it.
        self.shape = [f"--config={args.config}"] if self.gpu else [f"--model={args.model}"]
        self.demo = [f"--model={args.model}"]

    def call(self, command, *options, may_fail=False):
        line = [self.program, command, *map(str, options), f"--device={self.args.device}"]
        begin = time.monotonic()
        run = subprocess.run(line, stdout=subprocess.PIPE, text=True,
                             stderr=subprocess.DEVNULL if may_fail else None)
        if run.returncode == 1 and may_fail:
            return None, 0
        if run.returncode != 0:
            fail(f"exit status {run.returncode} of `{' '.join(line)}`")
        return run.stdout, time.monotonic() - begin

    def policies(self):
        return sorted(path.stem for path in self.pipelines.glob("adaptive_*.yaml"))

    def sweep(self, name, pipelines, weights, *options):
        files = [self.pipelines / f"{pipeline}.yaml" for pipeline in pipelines]
        out, seconds = self.call("sweep", *files, *weights, *options, f"--csv={self.out / name}")
        progress(f"{out.strip()} ({seconds:.0f} s)")

    def modes(self):
        return {"cuda": "host,graph,resident", "cpu": "host,resident"}.get(self.args.device, "resident")

    def pick(self, full, small):
        return small if self.args.small else full

    def blocks(self):
        """A mixed batch in a pool in which pressure rises and falls, with a trace."""
        folder = self.out / "pipelines"
        shutil.copytree(self.pipelines, folder, dirs_exist_ok=True)
        pipeline = folder / "adaptive_speculative.yaml"
        known = "      - trace: block_size.block\n"
        text = pipeline.read_text()
        if known not in text:
            fail(f"{pipeline} does not trace `block_size.block`")
        for gauge in ("block_size.ema", "kv.target.pressure"):
            if f"- trace: {gauge}\n" not in text:
                text = text.replace(known, known + f"      - trace: {gauge}\n")
        pipeline.write_text(text.replace(", index: auto", ""))  # each request has its own pages
        requests = self.out / "blocks.requests.jsonl"
        lengths = self.pick((192, 96, 240, 144, 64, 224, 128, 176, 80, 160, 208, 112), (48, 24, 60, 36, 16, 56, 32, 44, 20, 40))
        requests.write_text("".join(json.dumps(
            {"id": str(i), "text": PROMPTS[i % len(PROMPTS)], "max_new_tokens": length, "eos": []}) + "\n"
            for i, length in enumerate(lengths)))
        acceptance, trace = "0.95,0.3", self.out / "blocks.jsonl"
        def run(pages):
            """Its summary, and most pages at the end of a tick; None where the pool was too small."""
            out, _ = self.call("run", pipeline, *self.demo, f"--requests={requests}", "--format=json",
                               f"--set=page_tokens={PAGE_TOKENS}", f"--set=kv_pages={pages}",
                               f"--acceptance={acceptance}", f"--trace={trace}", may_fail=True)
            if out is None:
                return None, 0
            ticks = [json.loads(line) for line in trace.read_text().splitlines()[1:-1]]
            return json.loads(out.splitlines()[-1])["summary"], max(
                sum(len(kv["pages"]) for slot in tick["slots"] for kv in slot["kv"]) for tick in ticks)

        # Once with room, then in the smallest pool that no request faults in.
        summary, most = run(4096)
        for percent in (100, 103, 106, 109, 112, 115) if summary else ():
            used = most * percent // 100 + 1
            summary, _ = run(used)
            if summary:
                break
        if not summary:
            fail("the requests of blocks.jsonl fault in every pool in which there is pressure")
        config = json.loads((pathlib.Path(self.args.model) / "config.json").read_text())
        (self.out / "blocks.json").write_text(json.dumps({
            "device": summary.get("device_name") or {"cpu": "CPU executor", "reference": "reference executor"}[summary["device"]],
            "shape": f"{pathlib.Path(self.args.model).resolve().name} model ({config['num_hidden_layers']} layers)",
            "pages": used, "page_tokens": PAGE_TOKENS, "watermark": WATERMARK, "acceptance": acceptance, "slots": 8},
            indent=1) + "\n")
        progress(f"{trace}: {summary['ticks']} ticks, {used} pages")

    def claims(self):
        """What no figure shows, and docs/claims.md tells."""
        pick, repeats = self.pick, f"--repeats={self.pick(3, 1) if self.gpu else 1}"
        tokens = f"--tokens={pick(224, 24)}"
        # Whether another draw of right drafts says the same.
        for seed in range(1, pick(5, 2)):
            self.sweep(f"seed{seed}.csv", (PLAIN, LOOKUP, "adaptive_expected_gain"), self.shape, "--requests=1",
                       f"--vary={LOOKUP}:block={pick('1,2,4,8', '1,4')}", tokens, f"--acceptance-seed={seed}",
                       *(f"--acceptance={profile}" for profile in ("0.95", "0.7", "0.3")))
        # Where hardly any draft is right.
        self.sweep("low.csv", (PLAIN, LOOKUP, *self.policies()), self.shape, f"--vary={LOOKUP}:block=1,8",
                   f"--requests={pick('1,8', '1')}", tokens, repeats,
                   *(f"--acceptance={profile}" for profile in ("0", "0.1", "0.2")))
        # Pages and fragmentation: small pages, where drafts take some of their own.
        self.sweep("pages.csv", (PLAIN, LOOKUP, *self.policies()), self.demo, f"--vary={LOOKUP}:block=1,8", tokens,
                   "--set=page_tokens=4", "--set=kv_pages=2048",
                   *(f"--acceptance={profile}" for profile in ("0.95", "0.4", "0.1")))
        # What the policy itself costs: the same blocks without and with it.
        always = [f"--set={tier}_block=4" for tier in ("max", "mid", "min")]
        for name, pipeline, sets in (("fixed4.csv", LOOKUP, ["--set=block=4"]),
                                     ("policy4.csv", "adaptive_speculative", always)):
            for shape, weights in (("", self.shape), ("demo-", self.demo)):
                self.sweep(shape + name, (pipeline,), weights, *sets, "--requests=1,8", tokens, "--acceptance=0.7",
                           f"--repeats={pick(9, 1) if self.gpu else 1}")

    def run(self):
        self.out.mkdir(parents=True, exist_ok=True)
        tokens, pick = self.pick(128, 16), self.pick
        repeats = f"--repeats={pick(3, 1) if self.gpu else 1}"
        control = [f"--control={self.modes()}", f"--requests={pick('1,2,4,8', '1,2')}", f"--tokens={tokens}",
                   "--acceptance=0.7", repeats]
        self.sweep("control.csv", (PLAIN, LOOKUP), self.shape, *control)
        # How long a pass takes at least, in the middle of these requests.
        if self.gpu and not (self.out / "bench.csv").exists():
            self.call("bench", self.pipelines / f"{PLAIN}.yaml", *self.shape, f"--context={16 + tokens // 2}",
                      f"--batch={pick('1,2,4,8', '1,2')}", f"--tokens={pick(64, 16)}", f"--repeats={pick(3, 1)}",
                      f"--csv={self.out / 'bench.csv'}")
        self.sweep("control-demo.csv", (PLAIN, LOOKUP), self.demo, *control)
        self.sweep("acceptance.csv", (PLAIN, LOOKUP, *self.policies()), self.shape,
                   f"--vary={LOOKUP}:block={pick('1,2,4,8', '1,4')}", f"--requests={pick('1,8', '1,2')}",
                   f"--tokens={pick(224, 24)}", repeats, *(f"--acceptance={profile}" for profile in PROFILES))
        self.sweep("latency.csv", (PLAIN, LOOKUP, "adaptive_speculative"), self.shape,
                   f"--requests={pick('1,2,4,8,16,32', '1,8,16')}", f"--tokens={tokens}", "--acceptance=0.7", repeats)
        # 48 configurations of small requests.
        self.sweep("lab.csv", (LOOKUP,), self.demo, f"--requests={pick('2,4,8,16', '2,4')}",
                   f"--tokens={pick('32,64,128', '8,16')}", f"--vary=block={pick('1,2,4,8', '1,4')}")
        self.claims()
        self.blocks()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", default="bench-results", metavar="DIR", help="folder for the CSV files and the trace (default bench-results)")
    parser.add_argument("--megalith", metavar="PROGRAM", help="default: the one in build/tools, else in the PATH")
    parser.add_argument("--device", choices=("cuda", "cpu", "reference"), default="cuda",
                        help="cpu and reference count ticks, of the demo model alone")
    parser.add_argument("--config", default=BENCH / "shapes/llama-3.2-1b.json",
                        help="shape of the random weights (default shapes/llama-3.2-1b.json)")
    parser.add_argument("--model", default=ROOT / "models/demo", help="checkpoint of the demo model (default models/demo)")
    parser.add_argument("--small", action="store_true", help="few and short runs, to try the script out")
    args = parser.parse_args()
    Measuring(args).run()


if __name__ == "__main__":
    main()
