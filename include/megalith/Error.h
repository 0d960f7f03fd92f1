//===- Error.h - messages as data -------------------------------*- C++ -*-===//
//
// What went wrong, as a program can use it: a kind that does not change between
// versions, a sentence, a place in a file, notes. `text` has the same for a terminal.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_ERROR_H
#define MEGALITH_ERROR_H

#include "megalith/Export.h"
#include <string>
#include <utility>
#include <vector>

namespace megalith {

/// A second place, or advice, that belongs to an Error.
struct Note {
  std::string message;
  std::string file;              ///< empty: no place
  unsigned line = 0, column = 0; ///< from 1; 0: no place
};

/// One error or warning.
struct Error {
  bool warning = false;
  std::string kind; ///< stable, in kebab case: `unknown-key`
  std::string
      message;      ///< one sentence without the place, lower case, no full stop; may quote any bytes of a user's file
  std::string file; ///< as it was named when it was opened; empty: no place
  /// From 1; 0: no place. `column` and `length` count bytes.
  unsigned line = 0, column = 0, length = 0;
  std::vector<Note> notes;
  /// Everything above as `megalith` prints it: lines that end with a newline, with the source
  /// line and a caret. No byte of it controls a terminal.
  std::string text;
};

/// Errors and warnings in the order in which they were found. At most 20 errors and 20
/// warnings are kept; of the others only the number.
struct MEGALITH_API Messages {
  std::vector<Error> list;
  unsigned moreErrors = 0, moreWarnings = 0;

  bool hasErrors() const;
  bool empty() const { return list.empty(); }
  size_t size() const { return list.size(); }
  std::vector<Error>::const_iterator begin() const { return list.begin(); }
  std::vector<Error>::const_iterator end() const { return list.end(); }
  /// The first error; an Error of kind "" when there is none.
  Error first() const;
  /// All of them as `megalith` prints them.
  std::string text() const;
};

/// Ends the process with these messages: somebody used the value of an Expected that has none.
[[noreturn]] MEGALITH_API void endWithoutValue(const Messages &why);

} // namespace megalith
#endif
