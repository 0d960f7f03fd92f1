//===- Code.h - C++ text of a stage with what is known of it --------------===//
//
// Whoever puts two texts together needs to know of each how tight it binds, what it reads and
// whether it may fault. `Code` carries that with the text, and joins it when texts are joined:
// nobody looks into the text for it.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_LIB_EMIT_CODE_H
#define MEGALITH_LIB_EMIT_CODE_H

#include "megalith/IR/Effects.h"
#include <string>
#include <vector>

namespace megalith::emit {

/// C++ precedence, greatest binds tightest.
enum Precedence {
  Ternary = 3,
  OrLevel = 4,
  AndLevel = 5,
  Equality = 9,
  Relation = 10,
  Sum = 12,
  Product = 13,
  Unary = 14,
  Primary = 15
};

class Code {
public:
  Code() = default;
  explicit Code(llvm::StringRef text, Precedence precedence = Primary, ir::Resources reads = {})
      : precedence(precedence), reads(std::move(reads)), text(text.str()) {}
  static Code constant(int32_t value);
  static Code constant(double value); ///< an f32
  /// A member of the request's fields: `r.x`.
  static Code field(llvm::StringRef name, ir::Resources reads);

  Precedence precedence = Primary;
  ir::Resources reads;     ///< of the request
  bool mayFault = false;   ///< must be evaluated exactly where the IR does
  bool usesFields = false; ///< mentions `r`

  Code &add(llvm::StringRef more);
  /// With all that is known of `part`; in parentheses where that binds less than `least`.
  Code &add(const Code &part, Precedence least = Ternary);
  /// A call that may fault takes the line of its statement, which `#line` gives it. Where an operation of another line
  /// is written out, the number stands here, as a last argument. Which line the statement has is known last.
  Code &addLine(uint32_t line);

  bool empty() const { return text.empty(); }
  size_t size() const { return text.size(); }
  /// The text in a statement of that line.
  std::string inLine(uint32_t line) const;

private:
  std::string text;
  struct Line {
    size_t at; ///< in the text
    uint32_t line;
  };
  std::vector<Line> lines; ///< in order
};

/// One statement; a block has a body.
struct Statement {
  Code code; ///< `t.set(r.a, 1)`, `if (x)` or `for (...)`
  SourceLoc loc;
  bool isBlock = false;
  std::vector<Statement> body, otherwise;
};

} // namespace megalith::emit
#endif
