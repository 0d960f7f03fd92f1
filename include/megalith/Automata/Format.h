//===- Format.h - what an answer has to be ----------------------*- C++ -*-===//
#ifndef MEGALITH_AUTOMATA_FORMAT_H
#define MEGALITH_AUTOMATA_FORMAT_H

#include "megalith/Automata/Automaton.h"

namespace megalith::automata {

/// The texts that an answer may be.
struct Format {
  Automaton automaton;
  /// What was asked for and is not among them: of a schema (SchemaExpression::notes).
  std::vector<std::string> notes;
};

/// `format` is JSON text, an object with one of these members:
///
///   {"regex": "[a-z]+"}                     readExpression
///   {"choice": ["yes", "no"]}               one of these texts, which are not empty
///   {"json_schema": {...}, "depth": 3}      readSchema; `depth` is optional
///   {"json": 3}                             jsonOfDepth
///
/// Throws Refused: what is wrong with it and what to do.
Format readFormat(std::string_view format, const Limits &limits = {});

} // namespace megalith::automata

#endif
