#include "Options.h"
#include "Report.h"
#include "megalith/IR/Text.h"
#include "megalith/Plan/Plan.h"
#include "megalith/Text/Text.h"
#include "llvm/Support/raw_ostream.h"

namespace megalith::tool {

void reportAccepted(const driver::Compilation &compiled, Diagnostics &diags) {
  for (const std::string &name : compiled.accepted())
    diags.report(Diag::AcceptedOnWord, {}, name);
}

/// Registers, spills and shared memory of each kernel.
static void reportResources(const jit::CompileResult &result) {
  for (const jit::KernelResources &k : result.kernels)
    llvm::errs() << fmt::format("{}: {} registers, {} + {} bytes spilled (stores + loads), {} bytes of stack, "
                                "{} bytes of static shared memory\n",
                                text::printable(k.kernel), k.registers, k.spillStores, k.spillLoads, k.stackBytes,
                                k.sharedBytes);
  llvm::errs() << fmt::format("{} in {:.0f} ms\n", result.cacheHit ? "taken from the kernel cache" : "compiled",
                              result.milliseconds);
}

static bool assembleAndWrite(const CompileCommand &command, const std::string &cuda, const std::string &name,
                             Diagnostics &diags) {
  driver::AssembleOptions options;
  options.arch = command.arch;
  options.needPtx = command.emit == Emit::Ptx;
  auto result = driver::assemble(cuda, name, options, diags);
  if (!result)
    return false;
  reportResources(*result);
  if (command.noSpills)
    for (const jit::KernelResources &k : result->kernels)
      if (k.spills())
        diags.report(Diag::KernelSpills, {}, k.kernel, k.spillStores, k.spillLoads, command.arch);
  if (diags.hasErrors())
    return false;
  // A cubin is no text: it goes to a file or a pipe only.
  if (command.emit == Emit::Cubin && command.output == "-" && llvm::outs().is_displayed())
    return true;
  return writeOutput(command.output, command.emit == Emit::Ptx ? result->ptx : result->cubin, diags);
}

bool compileCommand(const CompileCommand &command, Diagnostics &diags) {
  driver::CompileOptions options = command.compile;
  const bool stopped = !options.stopAfter.empty();
  if (stopped && command.emitGiven) {
    diags.report(Diag::BadOption, {}, "--stop-after " + options.stopAfter,
                 "it prints the IR; leave `--emit` out");
    return false;
  }
  if (!stopped && (command.emit == Emit::Pipe || command.emit == Emit::Ast))
    options.stopAfter = "lower";
  const bool assembles = !stopped && (command.emit == Emit::Ptx || command.emit == Emit::Cubin);
  if (!command.cuFile.empty() && !assembles) {
    diags.report(Diag::BadOption, {}, "--cu " + command.cuFile, "it needs `--emit=cubin` or `--emit=ptx`");
    return false;
  }

  const std::vector<NamedFile> outputs = {{"-o", command.output}};
  if (!checkOutputs(outputs, {{"FILE", options.file}, {"--ir", options.irFile}, {"--cu", command.cuFile}}, diags))
    return false;
  auto compiled = driver::compile(options, diags);
  if (!compiled || !checkOutputs(outputs, filesRead(*compiled, diags.sources()), diags))
    return false;
  reportAccepted(*compiled, diags);
  const ir::Module &module = compiled->module;
  auto write = [&](const std::string &text) { return writeOutput(command.output, text, diags); };
  if (stopped)
    return write(ir::print(module));
  ir::PrintOptions print;
  switch (command.emit) {
  case Emit::Ast:
    return write(acceptedLine(compiled->accepted()) + compiled->ast);
  case Emit::Pipe:
  case Emit::Tick:
    print.part = ir::PrintOptions::Control;
    return write(ir::print(module, print));
  case Emit::Tensor:
    print.part = ir::PrintOptions::Models;
    return write(ir::print(module, print));
  default:
    break;
  }

  auto plan = driver::makePlan(module, options, diags);
  if (!plan)
    return false;
  if (command.emit == Emit::Plan)
    return write(acceptedLine(compiled->accepted()) + plan::print(*plan));
  driver::Source source = driver::emitSource(module, *plan, diags);
  if (command.emit == Emit::Manifest)
    return write(source.manifest);
  if (command.emit == Emit::Cuda)
    return write(source.cuda);
  std::string name = module.root.name + ".cu";
  if (!command.cuFile.empty() && !driver::readEditedSource(command.cuFile, source.cuda, name, diags))
    return false;
  return assembleAndWrite(command, source.cuda, name, diags);
}

} // namespace megalith::tool
