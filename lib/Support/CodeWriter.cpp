#include "megalith/Support/CodeWriter.h"
#include "megalith/Text/Text.h"
#include <algorithm>

namespace megalith {

void CodeWriter::raw(const std::string &text) {
  if (!text.empty() && text[0] != '#')
    out.append(2 * indent, ' ');
  out += text::comment(text, std::string::npos);
  out += '\n';
}

void CodeWriter::comment(llvm::StringRef text) {
  const size_t width = 97 - 2 * indent;
  while (!text.empty()) {
    size_t cut = text.size();
    if (cut > width) {
      cut = text.rfind(' ', width);
      if (cut == llvm::StringRef::npos)
        cut = std::min(text.find(' '), text.size());
    }
    raw("// " + text.take_front(cut).rtrim().str());
    text = text.drop_front(cut).ltrim();
  }
}

void CodeWriter::quote(llvm::StringRef line) { raw("// " + text::comment(line.trim())); }

CodeWriter::Scope CodeWriter::space(llvm::StringRef name) {
  raw("namespace " + name.str() + " {");
  return Scope(*this, "} // namespace " + name.str(), /*indented=*/false);
}

CodeWriter::Scope CodeWriter::scope(llvm::StringRef head, llvm::StringRef name) {
  raw(head.empty() ? "{" : head.str() + " {");
  ++indent;
  return Scope(*this, name.empty() ? "}" : "} // " + name.str());
}

CodeWriter::Scope CodeWriter::record(llvm::StringRef head) {
  raw(head.str() + " {");
  ++indent;
  return Scope(*this, "};");
}

CodeWriter::Scope CodeWriter::lambda(llvm::StringRef head) {
  raw(head.str() + " {");
  ++indent;
  return Scope(*this, "});");
}

std::string CodeWriter::spelled(llvm::StringRef file) { return text::literal(text::printable(file)); }

void CodeWriter::resumeLines() {
  if (!elsewhere)
    return;
  elsewhere = false;
  // This directive is itself one line; the one after it is what it numbers.
  size_t next = 2 + std::count(out.begin(), out.end(), '\n');
  raw(fmt::format("#line {} {}", next, spelled(fileName)));
}

void CodeWriter::sourceLine(unsigned line, llvm::StringRef file) {
  elsewhere = true;
  raw(fmt::format("#line {} {}", line, spelled(file)));
}

} // namespace megalith
