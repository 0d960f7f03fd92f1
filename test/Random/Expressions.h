//===- Expressions.h - random expressions of the pipeline language --------===//
#ifndef MEGALITH_TEST_RANDOM_EXPRESSIONS_H
#define MEGALITH_TEST_RANDOM_EXPRESSIONS_H

#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace megalith::random_pipelines {

/// Seq: of tokens; Numbers: of i32; Table: of tokens.
enum class Kind { I32, F32, Bool, Token, Seq, Numbers, Floats, Flags, Table };

struct Variable {
  std::string name;
  Kind kind;
  int64_t size = 0; ///< of a sequence: its capacity; of a param: its value, if isSize
  bool isSize = false;
  int64_t rows = 0; ///< of a table
};

/// What an expression can name, beside params and policies.
struct Scope {
  std::vector<Variable> variables;
  std::vector<Variable> indices; ///< binders, each below the length of the sequence `index.name` stands for
  bool slot = false, policy = false;
  int binders = 0;
};

struct Policy {
  std::string name;
  std::vector<Variable> members; ///< outputs and state
  size_t arguments = 0;
};

/// Expressions of a wanted type; mostly right.
class Expressions {
protected:
  Expressions(uint64_t seed, bool wordy) : wordy(wordy), words(seed % 2 == 0), random(seed * 0x9e3779b97f4a7c15u + 7) {}

  uint64_t below(uint64_t n) { return random() % n; }
  int64_t range(int64_t low, int64_t high) { return low + static_cast<int64_t>(below(high - low + 1)); }
  bool chance(unsigned percent) { return below(100) < percent; }
  template <class T> T oneOf(std::initializer_list<T> list) { return list.begin()[below(list.size())]; }

  std::string fresh();
  static const char *nameOf(Kind kind);
  /// As a value in YAML.
  static std::string quoted(const std::string &expression);

  std::string literal(Kind kind);
  /// This size, perhaps by a param.
  std::string sizeText(int64_t size);

  std::string value(Kind kind, const Scope &scope, int depth);
  std::string i32(const Scope &scope, int depth);
  std::string f32(const Scope &scope, int depth);
  std::string boolean(const Scope &scope, int depth);
  std::string token(const Scope &scope, int depth);
  /// Of at most `most` tokens.
  std::string sequence(const Scope &scope, int64_t most, int depth);

  static bool isList(Kind kind) { return kind >= Kind::Seq; }
  /// A sequence or table that fits into `shape`.
  std::string list(const Variable &shape, const Scope &scope, int depth);
  /// `i in 0..n` with n <= most; `inner` has i.
  std::string over(const Scope &scope, Scope &inner, int64_t most, int depth);

  const bool wordy;
  const bool words; ///< `filter`, `forced`, `token`, `is_eos`; those of odd seeds are as before there were any
  std::vector<Variable> constants, fields;
  std::vector<Policy> policies;

private:
  /// A name of this kind that the scope sees; empty: none.
  std::string named(Kind kind, const Scope &scope);
  std::string poolValue(const Scope &scope);
  /// `count` or `prefix_while` over a sequence or a few numbers.
  std::string loop(const Scope &scope, int depth);
  /// A function over a range with a value of this kind.
  std::string fold(Kind kind, const Scope &scope, int depth);
  std::string tiers(Kind kind, const Scope &scope, int depth);

  std::mt19937_64 random;
  std::set<std::string> taken = {"i", "j", "k"};
};

} // namespace megalith::random_pipelines
#endif
