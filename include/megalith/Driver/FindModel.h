//===- FindModel.h - the model file of a checkpoint -----------------------===//
//
// A model file says in `for:` whom it is for. Where the pipeline names none, the checkpoint's
// config.json chooses among the model files of several places, one place after the other.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_DRIVER_FINDMODEL_H
#define MEGALITH_DRIVER_FINDMODEL_H

#include "megalith/Sema/Model.h"
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace megalith::driver {

/// Folders that are looked at together: exactly one of their files may be for the checkpoint.
struct Place {
  enum Kind {
    Named,      ///< no search: `graph:` has the path
    Pipeline,   ///< beside the pipeline
    Share,      ///< what was installed with the program or the library
    Environment ///< a folder of $MEGALITH_MODELS
  } kind = Named;
  std::vector<std::string> folders;
};

/// Paths of the pipelines that were installed with the program or the library, by their names.
std::map<std::string, std::string> shippedPipelines();

/// The places, in order. `pipeline`: its path; "" without one.
std::vector<Place> placesOf(const std::string &pipeline);

struct FoundModel {
  std::string path;
  Place::Kind where = Place::Named;
  size_t candidates = 0; ///< model files that were looked at
};

/// The model file for the checkpoint of `config`. Reports `no-model-file` or `several-model-files` at `model`, the
/// pipeline's name for it (without a place: there is no pipeline), and warns of files that cannot be read
/// (`unreadable-model-file`). An entry of `for:` that `acceptance` names may be wrong. Texts that `diags` has in place
/// of files are looked at, too; none of the candidates becomes a source of `diags`.
std::optional<FoundModel> findModel(const std::string &pipeline, const ast::Name &model, const ConfigFile &config,
                                    const Acceptance &acceptance, Diagnostics &diags);

} // namespace megalith::driver
#endif
