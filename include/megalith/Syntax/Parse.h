//===- Parse.h - YAML text to AST -----------------------------------------===//
#ifndef MEGALITH_SYNTAX_PARSE_H
#define MEGALITH_SYNTAX_PARSE_H

#include "megalith/Support/Diagnostics.h"
#include "megalith/Syntax/Ast.h"
#include <optional>

namespace megalith::ast {

/// Reads a pipeline file. Reports every error it can find; nullopt if there was one.
std::optional<PipelineFile> parsePipeline(Diagnostics &diags, uint32_t file);
/// Reads a model file.
std::optional<ModelFile> parseModel(Diagnostics &diags, uint32_t file);
/// What a file says of whom it is for: name and `for:` of a model file, and nothing else of it. The name is empty when
/// it is a file of another kind, whatever was reported of it; nullopt after an error.
std::optional<ModelFile> parseAudience(Diagnostics &diags, uint32_t file);

/// Prints the AST in one readable form (`--emit=ast`).
std::string print(const PipelineFile &pipeline);
std::string print(const ModelFile &model);
std::string print(const Expr &expr);
/// The expression as a user would write it, in one form: `budget - 3`.
std::string written(const Expr &expr);

} // namespace megalith::ast
#endif
