#include "Help.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Process.h"
#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace megalith::tool {

using llvm::StringRef;

unsigned helpWidth() {
  unsigned width = 0;
  const char *given = std::getenv("COLUMNS");
  struct winsize size = {};
  if (!given || StringRef(given).getAsInteger(10, width) || width == 0)
    width = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
  return std::clamp(width, 40u, 120u); // longer lines are hard to read
}

std::string optionForm(const Option &option) {
  if (option.isFlag())
    return option.dashed();
  return option.dashed() + (option.isLetter() ? " <" : "=<") + option.value.form + ">";
}

namespace {

/// The words of `text` in lines of `width`. The first begins after `used` columns, the others after `indent`.
std::string wrapped(StringRef text, size_t used, size_t indent, size_t width, StringRef lineEnd = "") {
  std::string out;
  llvm::SmallVector<StringRef> words;
  text.split(words, ' ', -1, /*KeepEmpty=*/false);
  size_t column = used;
  bool first = true;
  for (StringRef word : words) {
    if (!first && column + 1 + word.size() + lineEnd.size() > width) {
      out += lineEnd.str() + "\n" + std::string(indent, ' ');
      column = indent;
    } else if (!first) {
      out += ' ';
      ++column;
    }
    out += word.str();
    column += word.size();
    first = false;
  }
  return out + "\n";
}

/// `left` at `indent`, and `text` in a column of its own, or below where `left` is long.
std::string entry(const std::string &left, StringRef text, size_t indent, size_t column, size_t width) {
  std::string out = std::string(indent, ' ') + left;
  if (out.size() + 2 > column)
    out += "\n" + std::string(column, ' ');
  else
    out.append(column - out.size(), ' ');
  return out + wrapped(text, column, column, width);
}

/// Command lines, each with what it does below.
std::string examplesText(StringRef examples, size_t width) {
  std::string out;
  while (!examples.empty()) {
    StringRef line;
    std::tie(line, examples) = examples.split('\n');
    const bool isCommand = !line.starts_with("  ");
    out += (isCommand ? "  " : "      ") + wrapped(line.ltrim(), isCommand ? 2 : 6, 6, width, isCommand ? " \\" : "");
  }
  return out;
}

constexpr const char *colorHelp =
    "Colours of messages: auto (default; on a terminal, unless NO_COLOR is set or TERM is "
    "dumb), always or never";

} // namespace

std::string programHelp(unsigned width) {
  const size_t column = 14;
  std::string out = wrapped("megalith turns a YAML description of an LLM inference pipeline into one persistent CUDA "
                            "kernel, and runs it.",
                            0, 0, width);
  out += "\nUSAGE: megalith <command> [options]\n\nCOMMANDS:\n";
  for (const Command *command : commands())
    out += entry(command->name().str(), command->about.description, 2, column, width);
  out += "\nOPTIONS, before a command or after it:\n";
  out += entry("--color[=<when>]", colorHelp, 2, 20, width);
  out += entry("-h, --help", "Help, of a command after it", 2, 20, width);
  out += entry("--version", "The version", 2, 20, width);
  out += "\n" + wrapped("`megalith help <command>` lists the options of a command and shows examples.", 0, 0, width);
  return out;
}

std::string commandHelp(const Command &command, unsigned width) {
  const size_t column = width < 70 ? 14 : 30;
  const Command::About &about = command.about;
  std::string out = wrapped(std::string(about.description) + ".", 0, 0, width);
  out += fmt::format("\nUSAGE: megalith {} [options]{}{}\n\nOPTIONS:\n", about.name, *about.operand ? " " : "",
                     about.operand);
  for (const Option *option : command.sorted()) {
    out += entry(optionForm(*option), option->help + (option->isRequired ? ". Required" : ""), 2, column, width);
    for (const Value::Choice &choice : option->value.choices)
      out += entry("  =" + choice.name, choice.help, 2, column, width);
  }
  out += entry("--color[=<when>]", colorHelp, 2, column, width);
  out += entry("-h, --help", "This help", 2, column, width);
  out += "\nEXAMPLES:\n" + examplesText(about.examples, width);
  return out;
}

} // namespace megalith::tool
