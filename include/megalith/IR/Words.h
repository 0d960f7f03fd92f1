//===- Words.h - words of IR text that are enumerations -------------------===//
//
// An attribute with a fixed set of words is one of these: Attributes.def names the
// enumeration, and code reads an enumerator. The words are the names of the list in
// snake case: `TopK` is "top_k".
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_IR_WORDS_H
#define MEGALITH_IR_WORDS_H

#include "megalith/Support/WeightScheme.h"
#include "llvm/ADT/StringRef.h"
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace megalith::ir {

#define WORDS(Enum, ...)                                                                                               \
  enum class Enum : uint8_t { __VA_ARGS__ };                                                                           \
  constexpr const char *namesOf(Enum) { return #__VA_ARGS__; }

/// Element types.
WORDS(Scalar, I32, I64, U32, F32, BF16, F16, Bool, Token)
WORDS(OnFull, Fail, Wait)
WORDS(Per, Request)
/// Who takes the items of a stage over buffers.
WORDS(Mapping, Serial, Lane, Warp, Auto)
WORDS(PartKind, Slot, Admit)
WORDS(Numerics, Transformers, Fused)
WORDS(RopeType, Default, Linear, Llama3, Yarn, Longrope)
/// What `host` reads.
WORDS(HostNumber, Tick, NowMs, Arrived, ArrivedMs, DeadlineMs)
/// What `fold` makes of the values of a range, and `embed` goes by.
WORDS(By, Sum, Min, Max, Argmin, Argmax, All, Any, Find, Token, Position)
WORDS(KvUse, Commit, Draft)
WORDS(ReducerPart, Token, Prob)
/// The order of summation, docs/ir.md.
WORDS(SumTree, Split8, Lanes32, Parts8, Rounds8)
/// Which two columns of a product a thread holds.
WORDS(Pairing, Adjacent, Half, Dual)
#undef WORDS

/// Codes of weights.
using megalith::WeightFormat;
constexpr const char *namesOf(WeightFormat) { return "Bf16, E4m3, U4, U8"; }

/// What operands beside the first ones are.
enum class Operand : uint8_t {
  From, ///< of `ngram_lookup`
  Ngram,
  Parents, ///< of calls
  Visible,
#define OPERAND(Id, Type, Taken) Id, ///< of reducers
#include "megalith/Contract/Reducers.def"
};
constexpr const char *namesOf(Operand) {
  return "From, Ngram, Parents, Visible"
#define OPERAND(Id, Type, Taken) ", " #Id
#include "megalith/Contract/Reducers.def"
      ;
}

/// "A, TopK" as words.
std::vector<std::string> splitNames(llvm::StringRef names);

template <class Enum> const std::vector<std::string> &wordsOf() {
  static const std::vector<std::string> words = splitNames(namesOf(Enum()));
  return words;
}
template <class Enum> const std::string &word(Enum e) { return wordsOf<Enum>()[static_cast<size_t>(e)]; }
template <class Enum> std::optional<Enum> wordNamed(llvm::StringRef text) {
  const std::vector<std::string> &words = wordsOf<Enum>();
  for (size_t i = 0; i < words.size(); ++i)
    if (text == words[i])
      return static_cast<Enum>(i);
  return std::nullopt;
}

} // namespace megalith::ir
#endif
