#include "Verifying.h"

using namespace megalith;
using namespace megalith::ir;

TEST(Verifier, AcceptsTensorCode) {
  EXPECT_EQ(inSegment(R"(
    %a = mul(%x, %v) : [R, 8] f32
    %s = reduce_sum(%a) {groups = 2, tree = "lanes32"} : [R, 2] f32
    %b = mul(%a, %s) : [R, 8] f32
    %c = mul(%s, %k) : [R, 2] f32
    %d = add(%v, %k) : [4] f32
    %h = round(%b) : [R, 8] bf16
    %p = matmul @w(%h) {tree = "split8"} : [R, 12] f32
    %cos = rope_cos {dim = 4} : [R, 8] bf16
    %rot = rotate_half(%h) {dim = 4} : [R, 8] bf16
    %kv = kv.append(%h, %h) {kv_heads = 2, dim = 4} : kv
    %o = attention(%h, %kv) {heads = 2, kv_heads = 2, dim = 4, scale = 0.5, tree = "rounds8"} : [R, 8] f32
    %z = repeat(%h) {count = 3} : [R, 8] bf16 {
      ^(%i : [R, 8] bf16):
      %m = matmul @l(%i) {tree = "split8"} : [R, 8] f32
      %r = round(%m) : [R, 8] bf16
      yield(%r)
    }
    %best = argmax(%p) : [R, 1] token
    %st = stream : [R, 12] f32 {
      %q = matmul @w(%z) {tree = "split8"} : [R, 12] f32
      yield(%q)
    })"),
            "");
}

TEST(Verifier, RejectsTensorCode) {
  const Case cases[] = {
      {"%a = add(%x, %y) : [R, 8] bf16", "the result must be `[R, 8] f32`, found `[R, 8] bf16`"},
      {"%a = matmul @w(%x) {tree = \"split8\"} : [R, 12] f32 %b = add(%a, %x) : [R, 12] f32",
       "operand 1 `[R, 8] bf16` does not divide 12 columns"},
      {"%a = matmul @q(%x) {tree = \"split8\"} : [R, 12] f32", "`@q` is no weight of the model"},
      {"%a = embed @c : [R, 12] bf16", "the weight must be a tensor as it is"},
      {"%a = embed @e {by = \"row\"} : [R, 8] bf16", "`by` must be one of token, position"},
      {"%a = matmul @w(%x) : [R, 12] f32", "the attribute `tree` of `matmul` is missing"},
      {"%a = matmul @w(%x) {tree = \"split8\"} : [R, 8] f32", "the result must be `[R, 12] f32`, found `[R, 8] f32`"},
      {"%a = matmul @v(%x) {tree = \"split8\"} : [R, 4] f32", "the weight `[4]` does not take rows of 8"},
      {"%a = matmul @l(%x) {tree = \"split8\"} : [R, 8] f32",
       "`@l` has one tensor per layer (3) and must be used in a `repeat` of that count"},
      {"%a = reduce_sum(%x) {groups = 3, tree = \"lanes32\"} : [R, 3] f32", "`groups` = 3 must divide 8"},
      {"%a = rotate_half(%x) {dim = 16} : [R, 8] bf16", "`dim` = 16 must divide 8"},
      {"%a = round(%k) : bf16", "operand 0 must be rows such as `[R, 64] f32`, found `f32`"},
      {"%a = kv.append(%x, %y) {kv_heads = 2, dim = 8} : kv", "operand 0 must be `[R, 16] bf16`, found `[R, 8] bf16`"},
      {"%a = repeat(%x) {count = 3} : [R, 8] bf16 { ^(%i : [R, 8] f32): yield(%i) }",
       "region argument 0 must be `[R, 8] bf16`"},
      {"%a = stream : [R, 8] bf16 { yield(%k) }", "operand 0 must be `[R, 8] bf16`, found `f32`"},
      {"%a = map : [R, 8] bf16 { yield }", "expected 1 yielded values, found 0"},
      {"%a = budget : i32", "`budget` is not legal in a segment"},
      {"%a = not(%k) : f32", "`not` is not legal in a segment"},
  };
  for (const Case &c : cases) {
    EXPECT_EQ(complaint(inSegment(c.code)), c.message) << c.code;
  }
}

TEST(Verifier, GroupsHoldWhatTheyCanCompute) {
  const Case cases[] = {
      {"%a = stream : [R, 8] bf16 { %r = round(%x) : [R, 8] bf16 yield(%r) }", "a `stream` has a product"},
      {"%a = map : [R, 12] f32 { %p = matmul @w(%x) {tree = \"split8\"} : [R, 12] f32 yield(%p) }",
       "`matmul` cannot stand in `map`"},
      {"%a, %b = stream : [R, 12] f32, [R, 12] f32 { %p = matmul @w(%x) {tree = \"split8\"} : [R, 12] f32 "
       "%q = matmul @w(%y) {tree = \"split8\"} : [R, 12] f32 yield(%p, %q) }",
       "the products of a `stream` have one operand"},
      {"%a = stream : [R, 12] f32 { %p = matmul @w(%x) {pair = \"dual\", partner = 3, tree = \"split8\"} : [R, 12] f32 "
       "yield(%p) }",
       "`partner` must be the number of another product of as many columns, whose partner this one is"},
      {"%a = stream : [R, 12] f32 { %p = matmul @w(%x) {dim = 5, pair = \"half\", tree = \"split8\"} : [R, 12] f32 "
       "yield(%p) }",
       "`dim` must be even and divide the columns"},
      {"%a = matmul @w(%x) {tree = \"pairs\"} : [R, 12] f32", "`tree` must be one of split8"},
      {"%k2 = kv.append(%x, %x) {kv_heads = 2, dim = 4} : kv %a = repeat(%k2) {count = 3} : kv { ^(%c : kv): yield(%c) "
       "}",
       "result 0 must be rows of numbers, found `kv`"},
  };
  for (const Case &c : cases) {
    EXPECT_EQ(complaint(inSegment(c.code)), c.message) << c.code;
  }
}
