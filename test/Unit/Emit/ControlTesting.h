// ControlTesting.h - a small module at the tick level, and the source that it becomes.
#ifndef MEGALITH_TEST_EMIT_CONTROLTESTING_H
#define MEGALITH_TEST_EMIT_CONTROLTESTING_H

#include "megalith/Emit/Control.h"
#include "megalith/IR/Text.h"
#include <gtest/gtest.h>

using namespace megalith;

namespace {

/// A tick-level module around the bodies of one stage's parts.
struct Pipeline {
  std::string declarations = "  field @draft {capacity = 8, type = \"token\"} @0:9:3\n"
                             "  field @accepted {init = 3, type = \"i32\"} @0:10:3\n"
                             "  field @\"size.ema\" {init = 0.5, type = \"f32\"} @0:11:3\n";
  std::string commit = "      goto {to = [\"DONE\"]} @0:29:9\n";
  std::string results;

  std::string text() const {
    return R"(module @p {after = "form-ticks", fault = "FAILED"} @0:1:1 {
  file {index = 0, path = "p.yaml"}
  param @slots {type = "i32", value = 4} @0:2:3
  param @rows_per_pass {type = "i32", value = 16} @0:3:3
)" + declarations +
           R"(  state @QUEUED {initial, next = ["VERIFY"]} @0:12:3
  state @VERIFY {next = ["COMMIT"], slot} @0:13:3
  state @COMMIT {next = ["VERIFY", "DONE"], slot} @0:14:3
  state @DONE {terminal} @0:15:3
  state @FAILED {terminal} @0:16:3
  pool @target {on_full = "wait", page_tokens = 16, pages = 32, rows_beyond = 9, watermark = 85} @0:17:3
  metric @committed @0:18:3
  gauge @"size.block" {type = "i32"} @0:19:3
  tick {
    part @admit {kind = "admit", stage = "admit", state = "QUEUED"} @0:20:3 {
      goto {to = ["VERIFY"]} @0:21:9
    }
    part @"verify.0" {before_site = 0, kind = "slot", stage = "verify", state = "VERIFY"} @0:22:3 {
      %tokens = tokens : token<> @0:23:9
      %n = seq.len(%tokens) : i32 @0:23:9
      %c1 = const {value = 1} : i32 @0:23:9
      %i = sub(%n, %c1) : i32 @0:23:9
      %last = seq.at(%tokens, %i) : token @0:23:9
      %s = seq.make(%last) : token<1> @0:23:9
      %d = field.get @draft : token<8> @0:23:9
      %fed = seq.concat(%s, %d) : token<9> @0:23:9
      issue @target(%fed) {kv = "draft", site = 0} @0:23:9 {
        reduce @argmax @0:23:9
      }
    }
    pass @target @0:23:9
    part @"verify.1" {after_site = 0, kind = "slot", stage = "verify", state = "VERIFY"} @0:22:3 {
)" + results +
           R"(      goto {to = ["COMMIT"]} @0:25:9
    }
    part @commit {kind = "slot", stage = "commit", state = "COMMIT"} @0:26:3 {
)" + commit +
           R"(    }
  }
  model @target {graph = "g", head_dim = 16, hidden = 16, kv_heads = 1, kv_layers = 1, layers = 1, numerics = "transformers", rope_theta = 10000.0, rope_type = "default", vocab = 100} @0:4:3 {
  }
}
)";
  }
};

std::optional<ir::Module> parsed(const std::string &text) {
  SourceFiles files;
  Diagnostics diags(files);
  auto module = ir::parse(diags, files.add("test.ir", text));
  EXPECT_TRUE(module && ir::verify(*module, diags)) << diags.render() << text;
  return module;
}

std::string emitted(const Pipeline &p, bool lines = false) {
  const auto module = parsed(p.text());
  if (!module)
    return "";
  CodeWriter w;
  emit::ControlOptions options;
  options.lineDirectives = lines;
  emit::emitControl(w, *module, nullptr, options);
  return w.text();
}

/// The lines between `head {` and its `} // name`.
std::string bodyOf(const std::string &text, const std::string &function) {
  const size_t begin = text.find(" void " + function + "(");
  const size_t end = text.find("} // " + function + "\n", begin);
  if (begin == std::string::npos || end == std::string::npos)
    return "no function " + function;
  const size_t line = text.find('\n', begin) + 1;
  return text.substr(line, end - line);
}

std::string commitOf(const std::string &operations) {
  Pipeline p;
  p.commit = operations;
  return bodyOf(emitted(p), "commit");
}

} // namespace

#endif
