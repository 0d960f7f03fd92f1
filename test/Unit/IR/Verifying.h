//===- Verifying.h - what the verifier says of small modules ---------------===//
#ifndef MEGALITH_TEST_IR_VERIFYING_H
#define MEGALITH_TEST_IR_VERIFYING_H

#include "megalith/IR/Text.h"
#include <gtest/gtest.h>

namespace megalith::ir {

/// Verifies a parsed module; "" when it is valid, else the message.
inline std::string problem(const std::string &text) {
  SourceFiles files;
  Diagnostics diags(files);
  uint32_t file = files.add("test.ir", text);
  std::optional<Module> module = parse(diags, file);
  EXPECT_TRUE(module) << diags.render() << text;
  if (!module || verify(*module, diags))
    return "";
  // `test.ir:3:5: error: the IR is not valid: MESSAGE [ir-invalid]`, and the line.
  std::string message = diags.render();
  llvm::StringRef s = message;
  EXPECT_TRUE(s.consume_front("test.ir:")) << message;
  s = s.split(" error: the IR is not valid: ").second;
  EXPECT_TRUE(s.contains(" [ir-invalid]\n")) << message;
  return s.split(" [ir-invalid]").first.str();
}

/// The attributes that a model must have.
#define MODEL                                                                                                          \
  R"({graph = "g", head_dim = 16, hidden = 8, kv_heads = 1, kv_layers = 1, layers = 1, )"                              \
  R"(numerics = "transformers", vocab = 32})"

/// Statements of a stage, with a few values to work on.
inline std::string inStage(const std::string &code) {
  return problem(R"(module @m {after = "lower"} {
  field @f {type = "f32"}
  field @s {type = "token", capacity = 4}
  input @few {type = "token", capacity = 1024}
  input @many {type = "token", capacity = 65536, optional, items = [3]}
  input @tenant {type = "i32", least = -1, most = 3, optional, init = 2}
  state @A {slot, next = ["B"]}
  state @B {terminal}
  pool @t {pages = 4, page_tokens = 16, rows_beyond = 0}
  metric @n
  gauge @g {type = "i32"}
  policy @p {
    policy.state @e {type = "f32"}
    policy.observe {
      ^(%x : i32):
      %r = ratio(%x, %x) : f32
      policy.set @p(%r) {state = "e"}
    }
    policy.output @o {
      %e = policy.get @p {state = "e"} : f32
      yield(%e)
    }
  }
  stage @st {on = "A"} {
    %i = budget : i32
    %b = finished : bool
    %f = field.get @f : f32
    %s = field.get @s : token<4>
    %t = tokens : token<>
    )" + code + R"(
    goto {to = ["B"]}
  }
})");
}

/// Operations of a segment, with a few values to work on.
inline std::string inSegment(const std::string &code) {
  return problem(R"(module @m {after = "form-ticks"} {
  model @t )" MODEL R"( {
    weight @e {shape = [32, 8], from = "e"}
    weight @w {shape = [12, 8], from = "w"}
    weight @l {shape = [8, 8], from = "l.{i}", layers = 3}
    weight @v {shape = [4], from = "v"}
    weight @c {shape = [8, 12], from = "w", stored = [12, 8], view = [0, 8, 0, 1, 8]}
    segment @s {
      %x = embed @e : [R, 8] bf16
      %y = embed @e : [R, 8] bf16
      %v = weight.get @v : [4] bf16
      %k = const {value = 0.5} : f32
      )" + code + R"(
      yield(%x)
    }
  }
})");
}

struct Case {
  const char *code, *message;
};

/// What it says first, without the operation that it says it of.
inline std::string complaint(const std::string &found) { return found.substr(0, found.find(", in `")); }

} // namespace megalith::ir
#endif
