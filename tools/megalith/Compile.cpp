//===- Compile.cpp - megalith compile -------------------------------------===//
#include "ProgramCommand.h"
#include "Report.h"
#include "megalith/Text/Text.h"
#include "llvm/Support/raw_ostream.h"

namespace megalith::tool {

namespace {

enum class Emit { Ast, Pipe, Tick, Tensor, Plan, Cuda, CudaControl, CudaTensors, CudaWide, Ptx, Cubin, Manifest };

class CompileCommand : public ProgramCommand {
public:
  CompileCommand();

private:
  Emit emit = Emit::Cuda;
  BinaryOptions binary;
  bool noSpills = false; ///< a kernel that spills is an error
  std::string output = "-";

  bool runProgram(Diagnostics &diags) override;
  bool assembleAndWrite(const Program &program, Diagnostics &diags) const;
};

CompileCommand::CompileCommand()
    : ProgramCommand({.name = "compile",
                      .description = "Compile a pipeline and print any level of it",
                      .examples = R"(megalith compile autoregressive --model models/demo
  prints the CUDA text of the pipeline's kernel
megalith compile autoregressive --model models/demo --emit=cubin -o kernel.cubin
  compiles it, and reports registers, spills and shared memory
megalith compile FILE --model DIR --stop-after=form-ticks -o edited.ir
megalith run FILE --model DIR --requests R.jsonl --ir edited.ir
  stops in the middle, and goes on from there after an edit)"}) {
  addModels();
  addKernel(binary.wholeKernel);
  addEdits(binary.sourceFiles);
  add("emit",
      choice(emit, {{Emit::Ast, "ast", "the YAML files as they were read"},
                    {Emit::Pipe, "pipe", "control IR before the passes: states, stages, calls"},
                    {Emit::Tick, "tick", "control IR after the passes: the static list of parts"},
                    {Emit::Tensor, "tensor", "the models' IR after the passes: streams and maps"},
                    {Emit::Plan, "plan", "matrices, buffers, phases and edges on the device"},
                    {Emit::Cuda, "cuda", "the CUDA text of the kernel: all its units"},
                    {Emit::CudaControl, "cuda-control", "its control unit: the pipeline, which an edit of it compiles"},
                    {Emit::CudaTensors, "cuda-tensors", "its tensor unit: the models, which their pipelines share"},
                    {Emit::CudaWide, "cuda-wide", "its wide unit, if it has one: the models in passes that run whole"},
                    {Emit::Ptx, "ptx", "NVRTC's PTX of all units"},
                    {Emit::Cubin, "cubin", "the linked cubin; resources go to stderr"},
                    {Emit::Manifest, "manifest", "what the runtime needs to know, JSON"}}),
      "What to print (default: cuda)");
  add("stop-after", text(compile.stopAfter, "pass"),
      "Print the whole IR after this pass (`lower`: before the first); --ir reads it");
  add("no-spills", flag(noSpills), "Model code that spills registers is an error");
  add("o", outputFile(text(output, "file")), "Output file (default: stdout)");
}

/// Registers, spills and shared memory of each kernel.
void reportResources(const Binary &result) {
  for (const Binary::Resources &k : result.kernels)
    llvm::errs() << fmt::format("{}: {} registers, {} + {} bytes spilled (stores + loads), {} bytes of stack, "
                                "{} bytes of static shared memory\n",
                                text::printable(k.kernel), k.registers, k.spillStores, k.spillLoads, k.stackBytes,
                                k.sharedBytes);
  llvm::errs() << fmt::format("{} in {:.0f} ms\n", result.how, result.milliseconds);
}

bool CompileCommand::assembleAndWrite(const Program &program, Diagnostics &diags) const {
  auto result = program.binary(binary);
  if (!got(result, diags))
    return false;
  diags.adopt(result->messages);
  reportResources(*result);
  if (noSpills)
    for (const Binary::Resources &k : result->kernels)
      if (k.spillStores || k.spillLoads)
        diags.report(Diag::KernelSpills, {}, k.kernel, k.spillStores, k.spillLoads, arch);
  if (diags.hasErrors())
    return false;
  // A cubin is no text: it goes to a file or a pipe only.
  if (emit == Emit::Cubin && output == "-" && llvm::outs().is_displayed())
    return true;
  return writeOutput(output, emit == Emit::Ptx ? result->ptx : result->code, diags);
}

bool CompileCommand::runProgram(Diagnostics &diags) {
  const bool stopped = !compile.stopAfter.empty();
  const bool assembles = !stopped && (emit == Emit::Ptx || emit == Emit::Cubin);
  if (stopped && given("emit"))
    return badOption(diags, shown("stop-after"), "it prints the IR; leave `--emit` out");
  if (!binary.sourceFiles.empty() && !assembles)
    return badOption(diags, "--cu " + binary.sourceFiles.front(), "it needs `--emit=cubin` or `--emit=ptx`");
  if (binary.wholeKernel && !assembles)
    return badOption(diags, "--whole-kernel", "it needs `--emit=cubin` or `--emit=ptx`");
  binary.arch = arch;
  binary.ptx = emit == Emit::Ptx;
  compile.weights = false;
  if (compile.profile.empty())
    compile.profile = profileOfArch(arch);
  if (!stopped && (emit == Emit::Pipe || emit == Emit::Ast))
    compile.stopAfter = "lower";
  const std::vector<NamedFile> outputs = files(Value::Output);
  if (!checkOutputs(outputs, inputs(), diags))
    return false;
  auto program = compileProgram(compile, diags);
  if (!program || !checkOutputs(outputs, filesRead(*program), diags))
    return false;
  reportAccepted(*program, diags);
  auto write = [&](const std::string &text) { return writeOutput(output, text, diags); };
  if (stopped)
    return write(program->ir());
  switch (emit) {
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
    return assembleAndWrite(*program, diags);
  auto source = program->source();
  if (!got(source, diags))
    return false;
  if (emit == Emit::CudaWide && !source->wide) {
    diags.report(Diag::BadOption, {}, "--emit=cuda-wide",
                 "the kernel has no passes that run whole; `--emit=plan` says why");
    return false;
  }
  if (emit == Emit::Plan)
    return write(acceptedLine(program->accepted()) + source->plan);
  return write(emit == Emit::Manifest      ? source->manifest
               : emit == Emit::CudaControl ? source->control.text
               : emit == Emit::CudaTensors ? source->tensors.text
               : emit == Emit::CudaWide    ? (source->wide ? source->wide->text : "")
                                           : source->cuda);
}

} // namespace

Command &compileCommand() {
  static CompileCommand command;
  return command;
}

} // namespace megalith::tool
