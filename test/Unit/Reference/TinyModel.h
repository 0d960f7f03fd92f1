//===- TinyModel.h - a small model and pipelines, as IR text --------------===//
#ifndef MEGALITH_TEST_UNIT_REFERENCE_TINYMODEL_H
#define MEGALITH_TEST_UNIT_REFERENCE_TINYMODEL_H

#include "megalith/Checkpoint/BFloat16.h"
#include "megalith/IR/Text.h"
#include "megalith/Reference/Executor.h"
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <random>
#include <stdexcept>

namespace tiny {

using namespace megalith;
using megalith::Request;
using reference::Options;
using reference::RunResult;

constexpr int vocab = 40, hidden = 32, heads = 4, kvHeads = 2, dim = 8, ffn = 48, layers = 2;

/// Random weights of the tiny model.
class Weights : public reference::WeightSource {
public:
  Weights() {
    auto add = [this](const std::string &name, std::vector<int64_t> shape, float mean, float spread) {
      int64_t count = 1;
      for (int64_t n : shape)
        count *= n;
      Tensor &t = tensors[name];
      t.shape = shape;
      std::normal_distribution<float> normal(mean, spread);
      for (int64_t i = 0; i < count; ++i)
        t.data.push_back(floatToBf16(normal(random)));
    };
    add("embed", {vocab, hidden}, 0, 1);
    add("head", {vocab, hidden}, 0, 0.3f);
    add("norm", {hidden}, 1, 0.1f);
    for (int i = 0; i < layers; ++i) {
      auto layer = [i](const char *name) { return fmt::format("layers.{}.{}", i, name); };
      add(layer("attn_norm"), {hidden}, 1, 0.1f);
      add(layer("wq"), {heads * dim, hidden}, 0, 0.2f);
      add(layer("wk"), {kvHeads * dim, hidden}, 0, 0.2f);
      add(layer("wv"), {kvHeads * dim, hidden}, 0, 0.3f);
      add(layer("wo"), {hidden, heads * dim}, 0, 0.3f);
      add(layer("mlp_norm"), {hidden}, 1, 0.1f);
      add(layer("gate"), {ffn, hidden}, 0, 0.2f);
      add(layer("up"), {ffn, hidden}, 0, 0.2f);
      add(layer("down"), {hidden, ffn}, 0, 0.3f);
    }
  }

  const uint16_t *find(const std::string &, const std::string &name, std::vector<int64_t> &shape) override {
    auto it = tensors.find(name);
    if (it == tensors.end())
      return nullptr;
    shape = it->second.shape;
    return it->second.data.data();
  }

  struct Tensor {
    std::vector<int64_t> shape;
    std::vector<uint16_t> data;
  };
  std::map<std::string, Tensor> tensors;

private:
  std::mt19937 random{7};
};

/// Writes the model's operations; every value gets a fresh name.
class ModelText {
public:
  /// `fused`: the head in a segment of its own that ends in the argmax, products
  /// and elementwise operations grouped. `window`: of each layer; `kvWindow`: below which pages are given back.
  std::string write(bool fused, int window = 0, int kvWindow = 0) {
    line("model @target {{graph = \"tiny\", head_dim = {}, hidden = {}, kv_heads = {}, "
         "kv_layers = {}, {}layers = {}, numerics = \"transformers\", rope_theta = 10000.0, "
         "rope_type = \"default\", vocab = {}}} {{",
         dim, hidden, kvHeads, layers, kvWindow ? fmt::format("kv_window = {}, ", kvWindow) : "", layers, vocab);
    weight("embed", fmt::format("{}, {}", vocab, hidden), false);
    weight("head", fmt::format("{}, {}", vocab, hidden), false);
    weight("norm", fmt::format("{}", hidden), false);
    weight("attn_norm", fmt::format("{}", hidden), true);
    weight("wq", fmt::format("{}, {}", heads * dim, hidden), true);
    weight("wk", fmt::format("{}, {}", kvHeads * dim, hidden), true);
    weight("wv", fmt::format("{}, {}", kvHeads * dim, hidden), true);
    weight("wo", fmt::format("{}, {}", hidden, heads * dim), true);
    weight("mlp_norm", fmt::format("{}", hidden), true);
    weight("gate", fmt::format("{}, {}", ffn, hidden), true);
    weight("up", fmt::format("{}, {}", ffn, hidden), true);
    weight("down", fmt::format("{}, {}", hidden, ffn), true);
    line("segment @body {{");
    line("%x = embed @embed : [R, {}] bf16", hidden);
    line("%y = repeat(%x) {{count = {}}} : [R, {}] bf16 {{", layers, hidden);
    line("^(%x0 : [R, {}] bf16):", hidden);
    std::string h = norm("%x0", "attn_norm");
    std::string q = rope(linear("wq", h, heads * dim), heads * dim);
    std::string k = rope(linear("wk", h, kvHeads * dim), kvHeads * dim);
    std::string v = linear("wv", h, kvHeads * dim);
    line("%kv = kv.append({}, {}) {{dim = {}, kv_heads = {}}} : kv", k, v, dim, kvHeads);
    line("%att = attention({}, %kv) {{dim = {}, heads = {}, kv_heads = {}, scale = "
         "0.3535533905932738, tree = \"rounds8\"{}}} : [R, {}] f32",
         q, dim, heads, kvHeads, window ? fmt::format(", window = [{}]", window) : "", heads * dim);
    std::string a = unary("round", "%att", heads * dim, "bf16");
    std::string x1 = fused ? fusedResidual("%x0", a) : rounded("add", "%x0", linear("wo", a, hidden), hidden);
    std::string g = norm(x1, "mlp_norm");
    std::string gate = linear("gate", g, ffn);
    std::string silu = unary("round", unary("silu", gate, ffn, "f32"), ffn, "bf16");
    std::string act = rounded("mul", silu, linear("up", g, ffn), ffn);
    line("yield({})", rounded("add", x1, linear("down", act, hidden), hidden));
    line("}}");
    std::string last = "%y";
    if (fused) {
      line("yield(%y)\n}}\nsegment @head {{\n^(%in : [R, {}] bf16):", hidden);
      last = "%in";
    }
    std::string logits = linear("head", norm(last, "norm"), vocab);
    if (fused) {
      line("%best = argmax({}) : [R, 1] token", logits);
      line("yield(%best)");
    } else {
      line("yield({})", logits);
    }
    line("}}\n}}");
    return text;
  }

private:
  template <class... T> void line(fmt::format_string<T...> format, T &&...args) {
    text += fmt::format(format, std::forward<T>(args)...) + "\n";
  }
  std::string fresh() { return fmt::format("%m{}", count++); }
  void weight(const char *name, const std::string &shape, bool layered) {
    line("weight @{} {{from = \"{}{}\", {}shape = [{}]}}", name, layered ? "layers.{i}." : "", name,
         layered ? fmt::format("layers = {}, ", layers) : "", shape);
  }
  std::string unary(const char *op, const std::string &a, int n, const char *type) {
    std::string v = fresh();
    line("{} = {}({}) : [R, {}] {}", v, op, a, n, type);
    return v;
  }
  std::string binary(const char *op, const std::string &a, const std::string &b, int n) {
    std::string v = fresh();
    line("{} = {}({}, {}) : [R, {}] f32", v, op, a, b, n);
    return v;
  }
  std::string rounded(const char *op, const std::string &a, const std::string &b, int n) {
    return unary("round", binary(op, a, b, n), n, "bf16");
  }
  std::string linear(const char *weight, const std::string &a, int n) {
    std::string v = fresh();
    line("{} = matmul @{}({}) {{tree = \"split8\"}} : [R, {}] f32", v, weight, a, n);
    return unary("round", v, n, "bf16");
  }
  std::string constant(const char *value) {
    std::string v = fresh();
    line("{} = const {{value = {}}} : f32", v, value);
    return v;
  }
  std::string norm(const std::string &x, const char *weight) {
    std::string square = binary("mul", x, x, hidden), sum = fresh(), w = fresh();
    line("{} = reduce_sum({}) {{groups = 1, tree = \"parts8\"}} : [R, 1] f32", sum, square);
    std::string mean = binary("mul", sum, constant("0.03125"), 1);
    std::string root = unary("rsqrt", binary("add", mean, constant("1.0e-05"), 1), 1, "f32");
    std::string n = rounded("mul", x, root, hidden);
    line("{} = weight.get @{} : [{}] bf16", w, weight, hidden);
    return rounded("mul", w, n, hidden);
  }
  std::string rope(const std::string &a, int n) {
    std::string cos = fresh(), sin = fresh(), turned = fresh();
    line("{} = rope_cos {{dim = {}}} : [R, {}] bf16", cos, dim, n);
    line("{} = rope_sin {{dim = {}}} : [R, {}] bf16", sin, dim, n);
    line("{} = rotate_half({}) {{dim = {}}} : [R, {}] bf16", turned, a, dim, n);
    return rounded("add", rounded("mul", a, cos, n), rounded("mul", turned, sin, n), n);
  }
  std::string fusedResidual(const std::string &x, const std::string &a) {
    std::string out = fresh();
    line("{} = stream : [R, {}] bf16 {{", out, hidden);
    std::string inner = rounded("add", x, linear("wo", a, hidden), hidden);
    line("yield({})\n}}", inner);
    return out;
  }
  std::string text;
  int count = 0;
};

struct Settings {
  int slots = 3, rows = 16, pages = 64, pageTokens = 4, chunk = 5, block = 4;
  int beside = 0;        ///< `rows_beside`; 0: absent
  int reserve = -1;      ///< of the pool; -1: absent
  int window = 0;        ///< of each layer; 0: none
  bool givesBack = true; ///< pages below it
  std::string onFull = "fail";
  bool fused = false;
};

inline std::string header(const Settings &s, const char *name, const char *after = "lower", int rowsBeyond = 0) {
  return fmt::format(R"(
module @{} {{after = "{}", fault = "FAILED"}} {{
  param @slots {{type = "i32", value = {}}}
  param @rows_per_pass {{type = "i32", value = {}}}
{}  state @FAILED {{terminal}}
  state @COMPLETE {{terminal}}
  pool @target {{on_full = "{}", page_tokens = {}, pages = {}, {}rows_beyond = {}, watermark = 50}}
  metric @tokens_committed
)",
                     name, after, s.slots, s.rows,
                     s.beside ? fmt::format("  param @rows_beside {{type = \"i32\", value = {}}}\n", s.beside) : "",
                     s.onFull, s.pageTokens, s.pages, s.reserve < 0 ? "" : fmt::format("reserve = {}, ", s.reserve),
                     rowsBeyond);
}

/// Admission and prefill; `next` is the state of a request with lag 1.
inline std::string prologue(const Settings &s, const char *next) {
  return fmt::format(R"(
  state @QUEUED {{initial, next = ["PREFILL", "COMPLETE"]}}
  state @PREFILL {{next = ["PREFILL", "{1}"], slot}}
  stage @admit {{on = "QUEUED"}} {{
    %done = finished : bool
    goto(%done) {{to = ["COMPLETE", "PREFILL"]}}
  }}
  stage @prefill {{on = "PREFILL"}} {{
    %t = tokens : token<>
    %a = kv.len @target : i32
    %n = seq.len(%t) : i32
    %one = const {{value = 1}} : i32
    %b = sub(%n, %one) : i32
    %s = seq.slice(%t, %a, %b) : token<>
    call @target(%s) {{chunk = {0}, kv = "commit", site = 0}}
    %lag = kv.lag @target : i32
    %one1 = const {{value = 1}} : i32
    %c = eq(%lag, %one1) : bool
    goto(%c) {{to = ["{1}", "PREFILL"]}}
  }}
)",
                     s.chunk, next);
}

inline std::string model(const Settings &s) {
  return ModelText().write(s.fused, s.window, s.givesBack ? s.window : 0) + "}\n";
}

inline std::string autoregressive(const Settings &s) {
  return header(s, "autoregressive") + prologue(s, "DECODE") + R"(
  state @DECODE {next = ["DECODE", "COMPLETE"], slot}
  stage @decode {on = "DECODE"} {
    %dt = tokens : token<>
    %dn = seq.len(%dt) : i32
    %done1 = const {value = 1} : i32
    %di = sub(%dn, %done1) : i32
    %last = seq.at(%dt, %di) : token
    %row = seq.make(%last) : token<1>
    %next = call @target(%row) {kv = "commit", site = 1} : token<1> {
      reduce @argmax
    }
    %app = append(%next) : i32
    count.add @tokens_committed(%app)
    %fin = finished : bool
    goto(%fin) {to = ["COMPLETE", "DECODE"]}
  }
)" + model(s);
}

/// The same at the tick level.
inline std::string autoregressiveTick(const Settings &s) {
  return header(s, "autoregressive", "form-ticks") +
         fmt::format(R"(
  state @QUEUED {{initial, next = ["PREFILL", "COMPLETE"]}}
  state @PREFILL {{next = ["PREFILL", "DECODE"], slot}}
  state @DECODE {{next = ["DECODE", "COMPLETE"], slot}}
  tick {{
    part @admit.0 {{kind = "admit", stage = "admit", state = "QUEUED"}} {{
      %done = finished : bool
      goto(%done) {{to = ["COMPLETE", "PREFILL"]}}
    }}
    part @prefill.0 {{before_site = 0, kind = "slot", stage = "prefill", state = "PREFILL"}} {{
      %t = tokens : token<>
      %a = kv.len @target : i32
      %n = seq.len(%t) : i32
      %one = const {{value = 1}} : i32
      %b = sub(%n, %one) : i32
      %s = seq.slice(%t, %a, %b) : token<>
      issue @target(%s) {{chunk = {}, kv = "commit", site = 0}}
    }}
    part @decode.0 {{before_site = 1, kind = "slot", stage = "decode", state = "DECODE"}} {{
      %dt = tokens : token<>
      %dn = seq.len(%dt) : i32
      %done1 = const {{value = 1}} : i32
      %di = sub(%dn, %done1) : i32
      %last = seq.at(%dt, %di) : token
      %row = seq.make(%last) : token<1>
      issue @target(%row) {{kv = "commit", site = 1}} {{
        reduce @argmax
      }}
    }}
    pass @target
    part @prefill.1 {{after_site = 0, kind = "slot", stage = "prefill", state = "PREFILL"}} {{
      %lag = kv.lag @target : i32
      %one1 = const {{value = 1}} : i32
      %c = eq(%lag, %one1) : bool
      goto(%c) {{to = ["DECODE", "PREFILL"]}}
    }}
    part @decode.1 {{after_site = 1, kind = "slot", stage = "decode", state = "DECODE"}} {{
      %next = results @target {{index = 0, site = 1}} : token<1>
      %app = append(%next) : i32
      count.add @tokens_committed(%app)
      %fin = finished : bool
      goto(%fin) {{to = ["COMPLETE", "DECODE"]}}
    }}
  }}
)",
                     s.chunk) +
         model(s);
}

/// Looked-up drafts of a block that follows the acceptance rate, capped under
/// pressure.
inline std::string speculative(const Settings &s) {
  return header(s, "speculative", "lower", s.block + 1) + prologue(s, "PROPOSE") +
         fmt::format(R"(
  field @draft {{capacity = {0}, type = "token"}}
  field @accepted {{init = 0, type = "i32"}}
  field @best {{capacity = {1}, inferred, type = "token"}}
  state @PROPOSE {{next = ["VERIFY"], slot}}
  state @VERIFY {{next = ["COMMIT"], slot}}
  state @COMMIT {{next = ["PROPOSE", "COMPLETE"], slot}}
  metric @tokens_accepted
  gauge @"size.block" {{type = "i32"}}
  gauge @"size.ema" {{type = "f32"}}
  policy @size {{per = "request"}} {{
    policy.state @ema {{init = 0.8, type = "f32"}}
    policy.observe {{
      ^(%acc0 : i32, %prop0 : i32):
      %ratio = ratio(%acc0, %prop0) : f32
      %old = policy.get @size {{state = "ema"}} : f32
      %alpha = const {{value = 0.2}} : f32
      %fone = const {{value = 1.0}} : f32
      %rest = sub(%fone, %alpha) : f32
      %new = mul(%alpha, %ratio) : f32
      %kept = mul(%rest, %old) : f32
      %ema = add(%new, %kept) : f32
      policy.set @size(%ema) {{state = "ema"}}
    }}
    policy.output @ema {{
      %cur = policy.get @size {{state = "ema"}} : f32
      yield(%cur)
    }}
    policy.output @block {{
      %e = policy.get @size {{state = "ema"}} : f32
      %high = const {{value = 0.5}} : f32
      %is = ge(%e, %high) : bool
      %big = const {{value = {0}}} : i32
      %small = const {{value = 1}} : i32
      %tier = select(%is, %big, %small) : i32
      %press = kv.pressure @target : bool
      %two = const {{value = 2}} : i32
      %cap = min(%tier, %two) : i32
      %size = select(%press, %cap, %tier) : i32
      yield(%size)
    }}
  }}
  stage @propose {{on = "PROPOSE"}} {{
    %pt = tokens : token<>
    %blk = policy.read @size {{output = "block"}} : i32
    %bud = budget : i32
    %p1 = const {{value = 1}} : i32
    %room = sub(%bud, %p1) : i32
    %width = min(%blk, %room) : i32
    %d0 = ngram_lookup(%pt, %width) {{ngram = 3}} : token<{0}>
    field.set @draft(%d0)
    goto {{to = ["VERIFY"]}}
  }}
  stage @verify {{on = "VERIFY"}} {{
    %vt = tokens : token<>
    %vn = seq.len(%vt) : i32
    %v1 = const {{value = 1}} : i32
    %vi = sub(%vn, %v1) : i32
    %last = seq.at(%vt, %vi) : token
    %first = seq.make(%last) : token<1>
    %d = field.get @draft : token<{0}>
    %rows = seq.concat(%first, %d) : token<{1}>
    %best = call @target(%rows) {{kv = "draft", site = 1}} : token<{1}> {{
      reduce @argmax
    }}
    field.set @best(%best)
    %len = seq.len(%d) : i32
    %acc = prefix_while(%len) : i32 {{
      ^(%i : i32):
      %x1 = seq.at(%d, %i) : token
      %y1 = seq.at(%best, %i) : token
      %same = eq(%x1, %y1) : bool
      yield(%same)
    }}
    field.set @accepted(%acc)
    observe @size(%acc, %len)
    goto {{to = ["COMMIT"]}}
  }}
  stage @commit {{on = "COMMIT"}} {{
    %cd = field.get @draft : token<{0}>
    %ca = field.get @accepted : i32
    %zero = const {{value = 0}} : i32
    %good = seq.slice(%cd, %zero, %ca) : token<{0}>
    %cb = field.get @best : token<{1}>
    %extra = seq.at(%cb, %ca) : token
    %tail = seq.make(%extra) : token<1>
    %all = seq.concat(%good, %tail) : token<{1}>
    %app = append(%all) : i32
    %ct = tokens : token<>
    %cn = seq.len(%ct) : i32
    %c1 = const {{value = 1}} : i32
    %keep = sub(%cn, %c1) : i32
    kv.keep @target(%keep)
    count.add @tokens_committed(%app)
    %counted = min(%ca, %app) : i32
    count.add @tokens_accepted(%counted)
    %shown = policy.read @size {{output = "block"}} : i32
    trace @"size.block"(%shown)
    %ema1 = policy.read @size {{output = "ema"}} : f32
    trace @"size.ema"(%ema1)
    %fin = finished : bool
    goto(%fin) {{to = ["COMPLETE", "PROPOSE"]}}
  }}
)",
                     s.block, s.block + 1) +
         model(s);
}

inline ir::Module parse(const std::string &text) {
  SourceFiles files;
  Diagnostics diags(files);
  auto module = ir::parse(diags, files.add("tiny.mir", text));
  if (!module || !ir::verify(*module, diags))
    throw std::runtime_error(diags.render());
  return std::move(*module);
}

inline std::vector<Request> prompts(int count, int64_t budget) {
  std::mt19937 random(3);
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) {
    Request r;
    r.id = fmt::format("r{}", i);
    for (int j = 0; j < 1 + i * 4; ++j)
      r.tokens.push_back(static_cast<int32_t>(random() % vocab));
    r.maxNewTokens = budget;
    requests.push_back(r);
  }
  return requests;
}

inline RunResult run(const std::string &text, const std::vector<Request> &requests, Options options = {}) {
  Weights weights;
  options.maxTicks = std::min<int64_t>(options.maxTicks, 5000);
  RunResult result = reference::run(parse(text), weights, requests, options);
  EXPECT_EQ(result.error, "");
  return result;
}

} // namespace tiny

#endif
