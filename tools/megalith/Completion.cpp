//===- Completion.cpp - megalith completion -------------------------------===//
//
// Scripts for shells and the man page, made of the list of options that help shows. They are
// made when the program is built, and installed with it.
//===----------------------------------------------------------------------===//
#include "Help.h"
#include "megalith/Tools.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace megalith::tool {

using llvm::StringRef;

namespace {

/// What can stand for a value that has no list.
enum class Operand { Nothing, File, Folder };
Operand operandOf(const Option &option) {
  const StringRef value = option.value.form;
  if (value.ends_with("DIR"))
    return Operand::Folder;
  return value.contains("file") || value.ends_with("path") ? Operand::File : Operand::Nothing;
}

std::vector<std::string> pipelineNames() {
  std::vector<std::string> names;
  for (const auto &[name, path] : tools::shippedPipelines())
    names.push_back(name);
  return names;
}

/// `text` with each of these names replaced.
std::string filled(std::string text, const std::vector<std::pair<std::string, std::string>> &values) {
  for (const auto &[name, value] : values)
    for (size_t at; (at = text.find(name)) != std::string::npos;)
      text.replace(at, name.size(), value);
  return text;
}

//===----------------------------------------------------------------------===//
// bash
//===----------------------------------------------------------------------===//

std::string bashScript() {
  std::string names, options, values;
  for (const Command *command : commands()) {
    const char *name = command->about.name;
    names += fmt::format(" {}", name);
    std::string list;
    for (const Option *known : command->sorted()) {
      const std::string option = known->dashed();
      list += " " + option + (known->isFlag() || known->isLetter() ? "" : "=");
      if (known->isFlag())
        continue;
      const std::string of = fmt::format("    {}:{}) ", name, option);
      if (!known->value.choices.empty())
        values += of + fmt::format("values='{}' ;;\n", fmt::join(known->value.names(), " "));
      else if (operandOf(*known) == Operand::Folder)
        values += of + "kind=-d ;;\n";
      else if (operandOf(*known) == Operand::File)
        values += of + "kind=-f ;;\n";
      else
        values += of + "kind= ;;\n";
    }
    options +=
        fmt::format("    {}) options='{} --color= --help' operands='{}' ;;\n", name, list.substr(list.empty() ? 0 : 1),
                    fmt::join(command->takesFiles() ? pipelineNames() : command->words(), " "));
  }
  return filled(R"(# Completion of megalith for bash; made by `megalith completion bash`.
_megalith() {
  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command= option= word i
  local options='--color= --help --version' operands= values= kind=none
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; ++i)); do
    word=${COMP_WORDS[i]}
    if [[ $word == = ]]; then
      ((++i)) # bash takes --option=value for three words
    elif [[ $word != -* && $word != help ]]; then
      command=$word
      break
    fi
  done
  if [[ $current == = ]]; then
    option=$before current=
  elif [[ $before == = ]]; then
    option=${COMP_WORDS[COMP_CWORD - 2]}
  elif [[ $before == -* ]]; then
    option=$before
  fi
  case $command in
    '') operands='help@NAMES@' ;;
@OPTIONS@  esac
  case $command:$option in
@VALUES@    *:--color) [[ $before == = || ${COMP_WORDS[COMP_CWORD]} == = ]] && values='auto always never' ;;
  esac
  if [[ -n $values ]]; then
    COMPREPLY=($(compgen -W "$values" -- "$current"))
  elif [[ $kind != none ]]; then
    [[ -n $kind ]] && compopt -o filenames 2>/dev/null && COMPREPLY=($(compgen $kind -- "$current"))
  elif [[ $current == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$current"))
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null
  else
    COMPREPLY=($(compgen -W "$operands" -- "$current"))
    if [[ -n $command && $command != completion && $command != cache ]]; then
      compopt -o filenames 2>/dev/null
      COMPREPLY+=($(compgen -f -X '!*.yaml' -- "$current") $(compgen -d -- "$current"))
    fi
  fi
}
complete -F _megalith megalith
)",
                {{"@NAMES@", names}, {"@OPTIONS@", options}, {"@VALUES@", values}});
}

//===----------------------------------------------------------------------===//
// zsh
//===----------------------------------------------------------------------===//

/// Between single quotes, inside an argument of `_arguments` or `_describe`.
std::string zshText(StringRef text) {
  std::string out;
  for (char c : text)
    out += c == '\''                        ? std::string("'\\''")
           : StringRef(":[]\\").contains(c) ? std::string("\\") + c
                                            : std::string(1, c);
  return out;
}

std::string zshScript() {
  std::string names, cases;
  for (const Command *command : commands()) {
    const char *name = command->about.name;
    names += fmt::format("    '{}:{}'\n", name, zshText(command->about.description));
    cases += fmt::format("    {})\n      _arguments \\\n", name);
    for (const Option *known : command->sorted()) {
      cases += fmt::format("        '{}{}{}[{}]", known->value.isList ? "*" : "", known->dashed(),
                           known->isFlag()     ? ""
                           : known->isLetter() ? "+"
                                               : "=",
                           zshText(known->help));
      if (!known->isFlag())
        cases += ":" + zshText(known->value.form) + ":" +
                 (!known->value.choices.empty()          ? fmt::format("({})", fmt::join(known->value.names(), " "))
                  : operandOf(*known) == Operand::Folder ? "_files -/"
                  : operandOf(*known) == Operand::File   ? "_files"
                                                         : " ");
      cases += "' \\\n";
    }
    cases += "        '--color=[Colours of messages]:when:(auto always never)' '(-h --help)'{-h,--help}'[Help]'";
    if (command->takesFiles())
      cases += " \\\n        '*:pipeline:_megalith_pipelines'";
    else if (const auto words = command->words(); !words.empty())
      cases += fmt::format(" \\\n        ':what:({})'", fmt::join(words, " "));
    cases += " ;;\n";
  }
  return filled(
      R"(#compdef megalith
# Completion of megalith for zsh; made by `megalith completion zsh`.
_megalith_pipelines() {
  _alternative 'names:pipeline:(@PIPELINES@)' 'files:file:_files -g "*.yaml"'
}
_megalith() {
  local -a commands
  commands=(
    'help:Help, of a command after it'
@NAMES@  )
  if (( CURRENT == 2 )); then
    _describe -t commands command commands
    return
  fi
  local command=$words[2]
  shift words
  (( CURRENT-- ))
  case $command in
    help) (( CURRENT == 2 )) && _describe -t commands command commands ;;
@CASES@  esac
}
if [[ $funcstack[1] == _megalith ]]; then
  _megalith "$@"
else
  compdef _megalith megalith
fi
)",
      {{"@NAMES@", names}, {"@CASES@", cases}, {"@PIPELINES@", fmt::format("{}", fmt::join(pipelineNames(), " "))}});
}

//===----------------------------------------------------------------------===//
// man
//===----------------------------------------------------------------------===//

/// A line of groff's text: nothing in it is a request or an escape.
std::string groff(StringRef text) {
  std::string out;
  for (char c : text)
    out += c == '\\' ? std::string("\\e") : c == '-' ? std::string("\\-") : std::string(1, c);
  return !out.empty() && (out[0] == '.' || out[0] == '\'') ? "\\&" + out : out;
}

std::string manPage() {
  std::string all;
  for (const Command *command : commands()) {
    const Command::About &about = command->about;
    all +=
        fmt::format(".SS megalith {} [options] {}\n{}.\n", about.name, groff(about.operand), groff(about.description));
    for (const Option *known : command->sorted()) {
      all += fmt::format(".TP\n.B {}\n{}{}\n", groff(optionForm(*known)), groff(known->help),
                         known->isRequired                       ? ". Required."
                         : StringRef(known->help).ends_with(".") ? ""
                                                                 : ".");
      for (const Value::Choice &choice : known->value.choices)
        all += fmt::format(".br\n.B {}\n{}\n", groff(choice.name), groff("(" + choice.help + ")"));
    }
    StringRef rest = about.examples;
    all += ".PP\nExamples:\n";
    while (!rest.empty()) {
      StringRef line;
      std::tie(line, rest) = rest.split('\n');
      all += line.starts_with("  ") ? groff(line.ltrim()) + "\n" : ".TP\n.B " + groff(line) + "\n";
    }
  }
  return filled(R"(.\" Made by `megalith completion man`.
.TH MEGALITH 1 "" "megalith @VERSION@"
.SH NAME
megalith \- compile an LLM inference pipeline into one CUDA kernel, and run it
.SH SYNOPSIS
.B megalith
.I command
[options]
.br
.B megalith help
[\fIcommand\fR]
.SH DESCRIPTION
megalith turns a YAML description of an LLM inference pipeline into one persistent CUDA kernel, and runs it.
.PP
A pipeline is a file, or the name of one that comes with megalith: @PIPELINES@.
A file of that name counts first.
A pipeline or a file of requests may be
.BR \- ,
the standard input.
.SH OPTIONS
These may stand before a command or after it.
.TP
.B \-\-color[=auto|always|never]
Colours of messages. Without it they are there on a terminal, unless NO_COLOR is set or TERM is dumb.
.TP
.B \-h, \-\-help
Help, of a command after it.
.TP
.B \-\-version
The version.
.SH COMMANDS
@COMMANDS@.SH EXIT STATUS
.TP
.B 0
All went well.
.TP
.B 1
There was an error, or a request ended with a fault or at a limit.
.TP
.B 2
The command line was not understood.
.TP
.B 130, 143
A run was interrupted (INT, TERM). The results of requests that had ended are written.
.SH ENVIRONMENT
MEGALITH_NVRTC, MEGALITH_NVJITLINK, MEGALITH_LIBCUDA, MEGALITH_HOST_CXX, MEGALITH_HOST_QUICK, MEGALITH_MODELS,
MEGALITH_CACHE_DIR, MEGALITH_CACHE_DAYS, MEGALITH_CACHE_SIZE: docs/running.md says what they do.
.PP
COLUMNS is the width of help; NO_COLOR takes colours away.
)",
                {{"@VERSION@", version()},
                 {"@PIPELINES@", groff(fmt::format("{}", fmt::join(pipelineNames(), ", ")))},
                 {"@COMMANDS@", all}});
}

class CompletionCommand : public Command {
public:
  CompletionCommand()
      : Command({.name = "completion",
                 .description = "Print the completion script for a shell, or the man page",
                 .operand = "bash|zsh|man",
                 .examples = R"(source <(megalith completion bash)
  completes commands, options and their values in this shell
megalith completion man | man -l -
  shows the man page)"}) {}

  bool run(Diagnostics &diags) override {
    const std::string &kind = operands[0];
    if (kind != "bash" && kind != "zsh" && kind != "man")
      return badOption(diags, "megalith completion " + kind, "expected bash, zsh or man");
    llvm::outs() << (kind == "bash" ? bashScript() : kind == "zsh" ? zshScript() : manPage());
    return true;
  }
};

} // namespace

Command &completionCommand() {
  static CompletionCommand command;
  return command;
}

} // namespace megalith::tool
