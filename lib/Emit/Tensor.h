//===- Tensor.h - the tensor half of the source ---------------------------===//
#ifndef MEGALITH_LIB_EMIT_TENSOR_H
#define MEGALITH_LIB_EMIT_TENSOR_H

#include "Names.h"
#include "Numbers.h"
#include "megalith/Emit/Emit.h"
#include "megalith/Support/CodeWriter.h"

namespace megalith::emit {

/// The address of a layer's copy of a weight vector (uses `p` and `layer`).
std::string vectorAddress(const Names &names, const plan::Vector &v);

/// Index of each weight's first pointer in LaunchParams::weights: weights of one tensor share it. In the order
/// of the manifest (aliases share their target's).
std::map<std::string, int> weightIndices(const ir::Operation &model);
/// How many entries of that table a weight has for each of its tensors: codes have scales and perhaps zero points after
/// them, each of all tensors.
int partsOf(const ir::Operation &weight);

/// Of a pool whose layers are codes or bf16: where these begin, in front of its struct and in it (Pool.cuh).
/// `memory`: where the table stands, `__constant__` in units that have other such tables. The linker puts constants of
/// the control unit in front of theirs, which then stand at places that nobody reads.
void emitKvPlaces(CodeWriter &w, const std::string &pool, const ir::Module &module, const ir::Operation &model,
                  const char *memory);
void emitKvPlace(CodeWriter &w, const std::string &pool);
/// What both units of a kernel for several models say of these (Units.cuh).
void emitModelFacts(CodeWriter &w, const ir::Module &module);
/// What a CTA has once, whatever the number of models: the ring and shared memory.
void emitShared(CodeWriter &w, const ir::Module &module, const plan::Plan &plan);
/// Of one model, the structs of constants (matrices, pool, buffers) and one function per segment.
void emitTensor(CodeWriter &w, const ir::Module &module, const plan::Plan &plan, const Names &names,
                const SourceFiles &files, const EmitOptions &options);
/// Declares the output columns of pair number `pair` of a range: `c0`, and `c1` where one weight has both. Who
/// packs the weights and who stores the products agree by it.
void emitPairColumns(CodeWriter &w, const plan::PairRange &r, const std::string &pair);
/// Whether the kernel reads single rows of this weight, where the checkpoint's order is: of a table of tokens or
/// positions. The rest is in the stream alone. A table that is a matrix, too (a tied head) is in both: the stream's
/// order has a row in pieces of 64 bytes.
bool isReadByRow(const ir::Operation &model, const ir::Operation &weight);
/// `megalith_pack`, for all models.
void emitPack(CodeWriter &w, const ir::Module &module, const plan::Plan &plan, const std::vector<Names> &names);
/// The producer's static program for a model: one function per segment.
void emitProducer(CodeWriter &w, const plan::Plan &plan, const Names &names);

} // namespace megalith::emit
#endif
