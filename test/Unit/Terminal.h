//===- Terminal.h - what tests of messages ask ----------------------------===//
#ifndef MEGALITH_TEST_UNIT_TERMINAL_H
#define MEGALITH_TEST_UNIT_TERMINAL_H

#include "megalith/Text/Text.h"

/// Whether `text` does more on a terminal than be read, newlines aside.
inline bool controlsTerminal(std::string_view text) {
  std::string lines;
  for (const char c : text)
    if (c != '\n')
      lines += c;
  return lines != megalith::text::printable(lines);
}

#endif
