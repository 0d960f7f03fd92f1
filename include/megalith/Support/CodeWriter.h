//===- CodeWriter.h - text with scopes ------------------------------------===//
//
// Emitters write lines; braces come from scopes only, so that they always match:
//
//   auto fn = w.scope("__device__ void propose(Request &r)", "propose");
//   w.line("r.accepted = {};", name);
//   // leaving C++ scope prints:  } // propose
//
// A line stays one line, whatever text of a user is in it: none of its bytes ends it,
// joins the next to it or hides it (see megalith/Text/Text.h).
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_SUPPORT_CODEWRITER_H
#define MEGALITH_SUPPORT_CODEWRITER_H

#include "llvm/ADT/StringRef.h"
#include <fmt/format.h>
#include <string>

namespace megalith {

class CodeWriter {
public:
  /// Closes its brace when destroyed.
  class Scope {
  public:
    Scope(CodeWriter &w, std::string close, bool indented = true)
        : writer(&w), close(std::move(close)), indented(indented) {}
    Scope(Scope &&other) noexcept : writer(other.writer), close(std::move(other.close)), indented(other.indented) {
      other.writer = nullptr;
    }
    Scope(const Scope &) = delete;
    Scope &operator=(const Scope &) = delete;
    Scope &operator=(Scope &&) = delete;
    ~Scope() {
      if (!writer)
        return;
      writer->indent -= indented;
      writer->raw(close);
    }

  private:
    CodeWriter *writer;
    std::string close;
    bool indented;
  };

  /// One line at the current indentation. With arguments, `text` is a fmt format.
  void line(llvm::StringRef text = "") { raw(text.str()); }
  template <typename First, typename... Rest> void line(llvm::StringRef text, const First &first, const Rest &...rest) {
    raw(fmt::format(fmt::runtime(text.str()), first, rest...));
  }
  /// A `//` comment, wrapped to 100 columns at the current indentation.
  void comment(llvm::StringRef text);
  /// A line of a user's file as a comment of one line; a long one is cut.
  void quote(llvm::StringRef line);
  /// `head {` ... `} // name`; an empty name leaves the closing comment out.
  Scope scope(llvm::StringRef head, llvm::StringRef name = "");
  /// `head {` ... `};`: a struct, or a named lambda.
  Scope record(llvm::StringRef head);
  /// `head {` ... `});` for a lambda that is the last argument of a call.
  Scope lambda(llvm::StringRef head);
  /// `namespace NAME {` ... `} // namespace NAME`, not indented.
  Scope space(llvm::StringRef name);
  /// `#line N "file"`: what follows belongs to that line of that file. Compilers
  /// count from there, so emitters put it before each statement of the user's.
  void sourceLine(unsigned line, llvm::StringRef file);

  /// `#line` back to the generated file itself, at its true next line.
  void resumeLines();
  /// How `#line` spells a file: a string literal of what a terminal would show of its name. Compilers
  /// print that name in their messages, each on one line; SourceFiles::named() finds the file by it.
  static std::string spelled(llvm::StringRef file);
  /// What resumeLines() calls the generated file.
  void setFileName(std::string name) { fileName = std::move(name); }

  const std::string &text() const { return out; }

private:
  void raw(const std::string &text);
  std::string out;
  std::string fileName = "pipeline.cu";
  unsigned indent = 0;
  bool elsewhere = false; ///< between sourceLine() and resumeLines()
};

} // namespace megalith
#endif
