#include "Origin.h"
#include <set>

namespace megalith::emit {

using ir::Op;
namespace attr = ir::attr;

/// Files of the operations below `region`, by number.
static std::set<int64_t> filesOf(const ir::Region &region) {
  std::set<int64_t> files;
  ir::walk(region, [&](const ir::Operation &op) {
    if (op.loc)
      files.insert(op.loc.file);
  });
  return files;
}

void emitOrigin(CodeWriter &w, const ir::Module &module, bool ofModels) {
  std::set<int64_t> modelFiles;
  for (const ir::Operation *model : module.all(Op::Model)) {
    modelFiles.merge(filesOf(model->region()));
    w.comment(fmt::format("model    {} ({})", model->name, model->get<attr::graph>()));
  }
  for (const ir::Operation *model : module.all(Op::Model))
    for (const std::string &name : model->get<attr::accepted>())
      w.comment(fmt::format("accepted {} of {}'s checkpoint, on the user's word (--accept)", name, model->name));
  for (const ir::Operation *file : module.all(Op::File))
    if (bool(modelFiles.count(file->get<attr::index>())) == ofModels)
      w.comment(fmt::format("source   {}", file->get<attr::path>()));
}

void emitParams(CodeWriter &w, const ir::Module &module) {
  std::string params;
  for (const ir::Operation *param : module.all(Op::Param)) {
    const ir::Number value = param->get<attr::value>();
    std::string list;
    for (int64_t item : param->has<attr::items>() ? param->get<attr::items>() : std::vector<int64_t>())
      list += fmt::format("{}{}", list.empty() ? "" : ", ", item);
    for (double item : param->has<attr::numbers>() ? param->get<attr::numbers>() : std::vector<double>())
      list += fmt::format("{}{}", list.empty() ? "" : ", ", static_cast<float>(item));
    if (!list.empty()) {
      params += fmt::format("{}{} = [{}]", params.empty() ? "" : ", ", param->name, list);
      continue;
    }
    params += (params.empty() ? "" : ", ") + param->name + " = " +
              (value.isReal()   ? fmt::format("{}", static_cast<float>(value.real()))
               : value.isFlag() ? std::string(value.truth() ? "true" : "false")
                                : std::to_string(value.whole()));
  }
  if (!params.empty())
    w.comment("params   " + params);
}

} // namespace megalith::emit
