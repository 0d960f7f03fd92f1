#include "Code.h"
#include "Numbers.h"
#include <cmath>

namespace megalith::emit {

Code Code::constant(int32_t value) {
  // The least one is written in parentheses.
  return Code(intLiteral(value), value < 0 && value != INT32_MIN ? Unary : Primary);
}

Code Code::constant(double value) {
  return Code(floatLiteral(value), std::signbit(value) && std::isfinite(static_cast<float>(value)) ? Unary : Primary);
}

Code Code::field(llvm::StringRef name, ir::Resources reads) {
  Code code("r." + name.str(), Primary, std::move(reads));
  code.usesFields = true;
  return code;
}

Code &Code::add(llvm::StringRef more) {
  text += more;
  return *this;
}

Code &Code::add(const Code &part, Precedence least) {
  const bool wrapped = part.precedence < least;
  if (wrapped)
    text += "(";
  for (const Line &line : part.lines)
    lines.push_back({text.size() + line.at, line.line});
  text += part.text;
  if (wrapped)
    text += ")";
  reads.insert(part.reads.begin(), part.reads.end());
  mayFault |= part.mayFault;
  usesFields |= part.usesFields;
  return *this;
}

Code &Code::addLine(uint32_t line) {
  lines.push_back({text.size(), line});
  return *this;
}

std::string Code::inLine(uint32_t line) const {
  std::string out;
  size_t done = 0;
  for (const Line &l : lines) {
    out += text.substr(done, l.at - done);
    if (l.line != line)
      out += ", " + std::to_string(l.line);
    done = l.at;
  }
  return out + text.substr(done);
}

} // namespace megalith::emit
