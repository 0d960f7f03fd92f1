// Runs llvm-symbolizer or `addr2line -a -f -i -C`, which print for each address
//
//   0x0000000000001139
//   inner(int*)
//   foo.yaml:12 (discriminator 3)
//   kernel
//   ./kernel.cu:40
#include "megalith/Jit/Symbols.h"
#include "megalith/Os/Process.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Program.h"
#include <algorithm>
#include <fmt/format.h>

namespace megalith::jit {

/// The tool with the options that make it print the above; empty if there is none.
/// llvm-symbolizer first: addr2line does not know the names of inlined static functions.
static std::vector<std::string> tool(const std::string &sharedObject) {
  if (auto path = llvm::sys::findProgramByName("llvm-symbolizer"))
    return {*path,       "--output-style=GNU", "--addresses",          "--functions=linkage",
            "--inlines", "--demangle",         "--obj=" + sharedObject};
  if (auto path = llvm::sys::findProgramByName("addr2line"))
    return {*path, "-a", "-f", "-i", "-C", "-e", sharedObject};
  return {};
}

static Frame parseFrame(llvm::StringRef function, llvm::StringRef place) {
  Frame frame;
  if (function != "??")
    frame.function = function.str();
  place = place.split(" (discriminator").first;
  auto [file, line] = place.rsplit(':');
  if (file == "??" || line.getAsInteger(10, frame.line))
    return frame;
  while (file.consume_front("./"))
    ;
  frame.file = file.str();
  return frame;
}

std::vector<std::vector<Frame>> symbolize(const std::string &sharedObject, llvm::ArrayRef<uint64_t> returnAddresses) {
  std::vector<std::vector<Frame>> frames(returnAddresses.size());
  std::vector<std::string> command = tool(sharedObject);
  if (command.empty() || returnAddresses.empty())
    return frames;
  const size_t options = command.size();
  os::ProcessOptions quiet;
  quiet.withErrors = false;
  // As many as fit into a command line with ease.
  constexpr size_t atOnce = 4096;
  for (size_t first = 0; first < returnAddresses.size(); first += atOnce) {
    command.resize(options);
    for (uint64_t address : returnAddresses.slice(first, std::min(atOnce, returnAddresses.size() - first)))
      command.push_back(fmt::format("{:#x}", address ? address - 1 : 0));
    os::ProcessResult result = os::run(command, quiet);
    if (!result.ok())
      continue;
    llvm::SmallVector<llvm::StringRef> lines;
    llvm::StringRef(result.output).split(lines, '\n', -1, /*KeepEmpty=*/false);
    size_t at = first;
    for (size_t i = 0; i < lines.size();) {
      // A function's name cannot begin with a digit.
      if (lines[i].starts_with("0x")) {
        ++i;
        ++at;
        continue;
      }
      if (i + 1 == lines.size() || at == first || at > frames.size())
        break;
      Frame frame = parseFrame(lines[i], lines[i + 1]);
      if (!frame.function.empty() || !frame.file.empty())
        frames[at - 1].push_back(std::move(frame));
      i += 2;
    }
  }
  // addr2line gives an inlined function that has no name in the symbol table the name of
  // the function that it is inlined into.
  for (std::vector<Frame> &chain : frames)
    if (chain.size() > 1 && chain.front().function == chain.back().function)
      chain.front().function.clear();
  return frames;
}

} // namespace megalith::jit
