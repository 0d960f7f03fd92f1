#include "Options.h"
#include "Report.h"
#include "megalith/Text/Text.h"
#include "llvm/Support/raw_ostream.h"

namespace megalith::tool {

std::optional<Program> compileProgram(const ProgramOptions &options, Diagnostics &diags) {
  auto program = Program::compile(options);
  if (!got(program, diags))
    return std::nullopt;
  diags.adopt(program->messages());
  return std::move(*program);
}

void reportAccepted(const Program &program, Diagnostics &diags) {
  for (const std::string &name : program.accepted())
    diags.report(Diag::AcceptedOnWord, {}, name);
}

/// Registers, spills and shared memory of each kernel.
static void reportResources(const Binary &result) {
  for (const Binary::Resources &k : result.kernels)
    llvm::errs() << fmt::format("{}: {} registers, {} + {} bytes spilled (stores + loads), {} bytes of stack, "
                                "{} bytes of static shared memory\n",
                                text::printable(k.kernel), k.registers, k.spillStores, k.spillLoads, k.stackBytes,
                                k.sharedBytes);
  llvm::errs() << fmt::format("{} in {:.0f} ms\n", result.how, result.milliseconds);
}

static bool assembleAndWrite(const CompileCommand &command, const Program &program, Diagnostics &diags) {
  BinaryOptions options;
  options.arch = command.arch;
  options.ptx = command.emit == Emit::Ptx;
  options.sourceFiles = command.cuFiles;
  options.wholeKernel = command.wholeKernel;
  auto result = program.binary(options);
  if (!got(result, diags))
    return false;
  diags.adopt(result->messages);
  reportResources(*result);
  if (command.noSpills)
    for (const Binary::Resources &k : result->kernels)
      if (k.spillStores || k.spillLoads)
        diags.report(Diag::KernelSpills, {}, k.kernel, k.spillStores, k.spillLoads, command.arch);
  if (diags.hasErrors())
    return false;
  // A cubin is no text: it goes to a file or a pipe only.
  if (command.emit == Emit::Cubin && command.output == "-" && llvm::outs().is_displayed())
    return true;
  return writeOutput(command.output, command.emit == Emit::Ptx ? result->ptx : result->code, diags);
}

bool compileCommand(const CompileCommand &command, Diagnostics &diags) {
  ProgramOptions options = command.compile;
  options.weights = false;
  const bool stopped = !options.stopAfter.empty();
  if (stopped && command.emitGiven) {
    diags.report(Diag::BadOption, {}, "--stop-after " + options.stopAfter, "it prints the IR; leave `--emit` out");
    return false;
  }
  if (!stopped && (command.emit == Emit::Pipe || command.emit == Emit::Ast))
    options.stopAfter = "lower";
  const bool assembles = !stopped && (command.emit == Emit::Ptx || command.emit == Emit::Cubin);
  if (!command.cuFiles.empty() && !assembles) {
    diags.report(Diag::BadOption, {}, "--cu " + command.cuFiles.front(), "it needs `--emit=cubin` or `--emit=ptx`");
    return false;
  }

  if (command.wholeKernel && !assembles) {
    diags.report(Diag::BadOption, {}, "--whole-kernel", "it needs `--emit=cubin` or `--emit=ptx`");
    return false;
  }

  const std::vector<NamedFile> outputs = {{"-o", command.output}};
  if (!checkOutputs(outputs, readFiles({{"FILE", options.file}, {"--ir", options.irFile}}, command.cuFiles), diags))
    return false;
  auto program = compileProgram(options, diags);
  if (!program || !checkOutputs(outputs, filesRead(*program), diags))
    return false;
  reportAccepted(*program, diags);
  auto write = [&](const std::string &text) { return writeOutput(command.output, text, diags); };
  if (stopped)
    return write(program->ir());
  switch (command.emit) {
  case Emit::Ast:
    return write(acceptedLine(program->accepted()) + program->ast());
  case Emit::Pipe:
  case Emit::Tick:
    return write(program->ir(Program::Ir::Control));
  case Emit::Tensor:
    return write(program->ir(Program::Ir::Models));
  default:
    break;
  }
  if (assembles)
    return assembleAndWrite(command, *program, diags);
  auto source = program->source();
  if (!got(source, diags))
    return false;
  if (command.emit == Emit::Plan)
    return write(acceptedLine(program->accepted()) + source->plan);
  return write(command.emit == Emit::Manifest      ? source->manifest
               : command.emit == Emit::CudaControl ? source->control.text
               : command.emit == Emit::CudaTensors ? source->tensors.text
                                                   : source->cuda);
}

} // namespace megalith::tool
