#ifndef MEGALITH_TEST_UNIT_SYNTAX_SYNTAXTESTING_H
#define MEGALITH_TEST_UNIT_SYNTAX_SYNTAXTESTING_H

#include "megalith/Syntax/Parse.h"
#include <string>

namespace megalith {

/// Parses text as a file `t.yaml` and keeps everything the parse refers to.
struct ParsedPipeline {
  SourceFiles files;
  Diagnostics diags{files};
  std::optional<ast::PipelineFile> ast;
  explicit ParsedPipeline(std::string text) { ast = ast::parsePipeline(diags, files.add("t.yaml", std::move(text))); }
};

struct ParsedModel {
  SourceFiles files;
  Diagnostics diags{files};
  std::optional<ast::ModelFile> ast;
  explicit ParsedModel(std::string text) { ast = ast::parseModel(diags, files.add("t.yaml", std::move(text))); }
};

/// A pipeline with nothing but `params`, of which `params` are the lines.
inline std::string withParams(const std::string &params) {
  return "pipeline: p\nstates: {}\nstages: {}\nparams:\n" + params;
}

/// A pipeline with one stage whose body is `body`: lines indented by 6, the
/// first of which is line 8 of the file.
inline std::string withBody(const std::string &body) {
  return "pipeline: p\nstates: {}\nstages:\n  s:\n    on: A\n    goto: A\n    "
         "do:\n" +
         body;
}

} // namespace megalith
#endif
