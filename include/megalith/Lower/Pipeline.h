//===- Pipeline.h - a checked pipeline becomes pipe-level IR --------------===//
#ifndef MEGALITH_LOWER_PIPELINE_H
#define MEGALITH_LOWER_PIPELINE_H

#include "megalith/IR/IR.h"
#include "megalith/Sema/Pipeline.h"

namespace megalith {

/// Makes the module of `pipeline` with its control half: files, params, fields,
/// states, pools, metrics, gauges, policies and stages (docs/ir.md). Every
/// operation has the place in the YAML file that it comes from; `files` are the
/// files that those places number. Models are appended by lowerModel.
ir::Module lowerPipeline(const CheckedPipeline &pipeline, const SourceFiles &files);

} // namespace megalith
#endif
