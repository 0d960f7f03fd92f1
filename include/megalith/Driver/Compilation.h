//===- Compilation.h - the chain of stages --------------------------------===//
//
// YAML -> AST -> checked program -> IR -> passes -> plan -> CUDA text -> cubin.
// The file to open first: every stage is one call of compile().
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_DRIVER_COMPILATION_H
#define MEGALITH_DRIVER_COMPILATION_H

#include "megalith/Checkpoint/ConfigFile.h"
#include "megalith/Checkpoint/SafetensorsFile.h"
#include "megalith/Driver/FindModel.h"
#include "megalith/Emit/Emit.h"
#include "megalith/IR/IR.h"
#include "megalith/Jit/Compile.h"
#include "megalith/Jit/Linker.h"
#include "megalith/Plan/Calls.h"
#include "megalith/Plan/Plan.h"
#include "megalith/Sema/Model.h"
#include "megalith/Support/Diagnostics.h"
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace megalith::driver {

/// What a compilation has found of one model, as far as it came.
struct ModelFindings {
  std::string name;
  std::optional<ConfigFile> config;
  std::optional<FoundModel> file;
  std::optional<ast::ModelFile> parsed;
  ModelReport report;
  std::vector<std::string> accepted; ///< of a model that runs: what was taken on the user's word
};

/// What a compilation is asked for.
struct CompileOptions {
  std::string file;                                        ///< the pipeline's YAML
  std::vector<std::pair<std::string, std::string>> models; ///< NAME (or "") and checkpoint directory
  bool modelsOfOthers = false;                             ///< some may be of models that this pipeline lacks
  std::vector<std::pair<std::string, std::string>> sets;   ///< `--set name=value`
  std::vector<std::string> planSettings;                   ///< `--plan key=value`
  std::vector<std::string> accept;                         ///< `--accept`: keys and tensors, on the user's word
  std::vector<std::pair<std::string, std::string>> graphs; ///< model files that were found before, by the model's name
  std::string profile = "h200";                            ///< `--device-profile`
  bool profileGiven = false;                               ///< it was asked for: a device chooses no other
  std::string irFile;                                      ///< start from this IR instead of the YAML
  std::string stopAfter;                                   ///< last pass to run; empty = all
  bool needWeights = false;                                ///< open model.safetensors and check every tensor
  bool printAfterAll = false, timePasses = false;
  std::function<void(const std::string &)> sink;  ///< receives what the two above print
  std::vector<ModelFindings> *findings = nullptr; ///< receives one of each model
};

/// A pipeline's model with its checkpoint.
struct LoadedModel {
  std::string name, directory;
  uint32_t file = 0; ///< the model file
  CheckedModel checked;
  std::optional<SafetensorsFile> weights; ///< when needWeights
  /// Positions that it was made for: after them its angles mean nothing or are others, or a table of positions has no
  /// rows. nullopt: it does not say.
  std::optional<double> positions() const { return checked.positions(); }
  /// Where that stands, for messages.
  std::string positionsPlace() const;
};

/// Results of the front half: everything up to the passed module.
struct Compilation {
  std::vector<LoadedModel> models;
  std::string ast; ///< printed AST of the pipeline and its model files
  ir::Module module;
  /// Of all models: keys and tensors that were taken on the user's word.
  std::vector<std::string> accepted() const;
  /// Of all models whose weights were opened: how many tensors that are read have another type than bf16, by its name.
  std::map<std::string, int64_t> converted() const;
  /// The formats of each model that has codes, by its name.
  std::map<std::string, std::string> formats() const;
};

/// Registers `path`, or reports `cannot-read-file`.
std::optional<uint32_t> openSource(Diagnostics &diags, const std::string &path, SourceLoc from = {},
                                   uint64_t most = os::sourceBytes);

/// Reads a registered file of IR text, checks that it is whole, and gives the files that it lists
/// the numbers that they have in `diags`.
std::optional<ir::Module> readIr(uint32_t file, Diagnostics &diags);

/// A checkpoint without a pipeline: finds its model file, and checks it as compile() does. False after an error.
bool inspectModel(const CompileOptions &options, Diagnostics &diags);

/// The states of a pipeline and the ways between them, as a graph in the language of Graphviz. Needs no checkpoint.
/// nullopt after an error.
std::optional<std::string> stateDiagram(const std::string &file, Diagnostics &diags);

/// YAML (or IR text) to a module after the last pass wanted. nullopt on error.
std::optional<Compilation> compile(const CompileOptions &options, Diagnostics &diags);

/// A finished module to its plan.
std::optional<plan::Plan> makePlan(const ir::Module &module, const CompileOptions &options, Diagnostics &diags);

/// The same of a pipeline of buffers.
std::optional<plan::CallPlan> makeCallPlan(const ir::Module &module, const CompileOptions &options, Diagnostics &diags);

/// The emitted units and their manifest.
struct Source {
  emit::Units units;
  std::string manifest;
};
Source emitSource(const ir::Module &module, const plan::Plan &plan, Diagnostics &diags);
Source emitSource(const ir::Module &module, const plan::CallPlan &plan, Diagnostics &diags);

/// All units as one text: as a person reads them, and as the whole kernel is compiled.
std::string wholeText(const emit::Units &units);

/// Puts the units that an edited file holds, one or several, in place of those in `units`, and its path in place of
/// their names, so that errors of compilers come back at its lines. One that is still the emitted one changes nothing.
/// False after `cannot-read-file` or `no-unit`.
bool readEditedSource(const std::string &path, const emit::Units &emitted, emit::Units &units, Diagnostics &diags);

struct AssembleOptions {
  std::string arch;                    ///< "sm_80", "sm_90a", "sm_100a", ...
  bool needPtx = false;                ///< the cache holds cubins only: compile anyway
  bool whole = false;                  ///< in one unit
  const jit::Linker *linker = nullptr; ///< null: nvJitLink
};

/// Compiles the units with NVRTC and links them, through the disk cache. Where they cannot be linked, the kernel is
/// compiled whole, and the warning `not-linked` says so; for GPUs below sm_90 it always is. With `needPtx` nothing is
/// linked: the result has PTX of the units, and no cubin.
std::optional<jit::CompileResult> assemble(const emit::Units &units, const AssembleOptions &options,
                                           Diagnostics &diags);
/// One text that is no kernel of ours, to a cubin.
std::optional<jit::CompileResult> assembleText(const std::string &cuda, const std::string &fileName,
                                               const AssembleOptions &options, Diagnostics &diags);

/// A kernel compiled for the CPU executor.
struct HostKernel {
  std::string path; ///< of the shared object; see jit::HostCompileResult
  double milliseconds = 0;
  bool cacheHit = false;
  std::string how;
};

struct HostOptions {
  bool checked = false; ///< a checked launch sees every plain access
  int arch = 900;       ///< __CUDA_ARCH__: which of its variants the device code takes
  /// One that runs a few times: jit::Effort::Least. With $MEGALITH_HOST_QUICK others are compiled with Effort::Less.
  bool quick = false;
  bool whole = false;                                             ///< in one unit
  std::function<void(std::vector<jit::Header> &)> edit = nullptr; ///< of the device code, by tests
};

/// The device code: what emitted text includes, by the name it includes it by. As the CPU executor compiles it, and as
/// NVRTC does.
std::vector<jit::Header> hostHeaders(), deviceHeaders();

/// Compiles the units with the host's compiler and links them, through the disk cache. Errors:
/// `host-compiler-not-found`, `cpu-compile`.
std::optional<HostKernel> assembleHost(const emit::Units &units, const HostOptions &options, Diagnostics &diags);
/// One text that is no kernel of ours.
std::optional<HostKernel> assembleHostText(const std::string &cuda, const std::string &fileName,
                                           const HostOptions &options, Diagnostics &diags);

/// Turns an error of the Checkpoint library into a diagnostic.
void reportCheckpoint(Diagnostics &diags, const FileError &error);

} // namespace megalith::driver
#endif
