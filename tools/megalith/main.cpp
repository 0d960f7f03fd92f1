//===- main.cpp - megalith, the program -----------------------------------===//
#include "Common.h"
#include "Help.h"
#include "Usage.h"
#include "megalith/Os/Ending.h"
#include "megalith/Support/Tool.h"
#include "llvm/Support/raw_ostream.h"

using namespace megalith;
using namespace megalith::tool;
using namespace llvm;

ArrayRef<Command *> tool::commands() {
  static Command *const all[] = {&compileCommand(), &runCommand(),     &exploreCommand(), &benchCommand(),
                                 &sweepCommand(),   &inspectCommand(), &cacheCommand(),   &completionCommand()};
  return all;
}

namespace {

bool isSet(const char *variable) {
  const char *value = std::getenv(variable);
  return value && *value;
}

/// "error:" and the like in colours, where they begin a message.
std::string colored(StringRef text) {
  std::string out;
  while (!text.empty()) {
    StringRef line;
    std::tie(line, text) = text.split('\n');
    for (const auto &[word, color] :
         {std::pair("error:", "1;31"), std::pair("warning:", "1;35"), std::pair("note:", "1;36")}) {
      // At the begin, or after FILE:LINE:COLUMN.
      const size_t at = line.starts_with(word) ? 0 : line.find(std::string(": ") + word);
      if (at == StringRef::npos)
        continue;
      const size_t begin = at ? at + 2 : 0, length = StringRef(word).size();
      out += fmt::format("{}\x1b[{}m{}\x1b[0m", line.take_front(begin).str(), color, word);
      line = line.drop_front(begin + length);
      break;
    }
    out += line.str() + "\n";
  }
  return out;
}

void print(const Diagnostics &diags, Color color) {
  const char *terminal = std::getenv("TERM");
  const bool colors = color == Color::Always || (color == Color::Auto && errs().is_displayed() && !isSet("NO_COLOR") &&
                                                 terminal && StringRef(terminal) != "dumb");
  errs() << (colors ? colored(diags.render()) : diags.render());
}

/// Whether the command line was wrong, and nothing else was tried.
bool isUsage(const Diagnostics &diags) { return diags.messages().first().kind == diagInfo(Diag::BadOption).kebab; }

int megalithMain(int argc, char **argv) {
  SourceFiles sources;
  Diagnostics diags(sources);
  if (argc == 1) {
    errs() << programHelp(helpWidth());
    return 2;
  }
  const std::vector<StringRef> given(argv + 1, argv + argc);
  const CommandLine line = readCommandLine(given, diags);
  if (line.asks == CommandLine::Version) {
    outs() << "megalith " << version() << "\n";
    return 0;
  }
  if (line.asks == CommandLine::Help && (line.command || !diags.hasErrors())) {
    outs() << (line.command ? commandHelp(*line.command, helpWidth()) : programHelp(helpWidth()));
    return 0;
  }
  if (diags.hasErrors()) {
    print(diags, line.color);
    return 2;
  }
  const bool ok = line.command->run(diags);
  outs().flush();
  clearProgress();
  print(diags, line.color);
  if (const int signal = os::interrupted())
    return 128 + signal;
  return ok && !diags.hasErrors() ? 0 : isUsage(diags) ? 2 : 1;
}

} // namespace

int main(int argc, char **argv) {
  return runTool([&] { return megalithMain(argc, argv); });
}
