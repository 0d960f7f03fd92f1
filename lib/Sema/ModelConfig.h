//===- ModelConfig.h - constants of a model file --------------------------===//
//
// The `config:` section and expressions over its names: weight shapes, eps,
// scales. Integers stay integers, and a division must come out even.
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_LIB_SEMA_MODELCONFIG_H
#define MEGALITH_LIB_SEMA_MODELCONFIG_H

#include "megalith/Sema/Model.h"

namespace megalith {

/// Names that constants may use; nested entries are dotted.
using ConfigNames = std::map<std::string, ConfigValue>;

/// Reads `config:` from config.json. Reports missing keys and wrong types.
ConfigNames readConfig(const std::vector<ast::ConfigEntry> &entries, const ConfigFile &file,
                       Diagnostics &diags);

/// Evaluates a constant expression; reports and returns nullopt on an error.
std::optional<ConfigValue> evaluateConstant(const ast::Expr &expr, const ConfigNames &names,
                                            Diagnostics &diags);

/// True when `expr` uses nothing but literals and `names`, so that it can be
/// evaluated without an unknown name.
bool isConstant(const ast::Expr &expr, const ConfigNames &names);

/// The value as a number; nullopt for a string or a bool.
std::optional<double> asNumber(const ConfigValue &value);

/// For messages: `a bool (true)`.
std::string describe(const ConfigValue &value);

/// Checks `graph:`; fills graph, layers, heads, vocab and what depends on them.
/// Returns false after an error.
bool checkGraph(const ast::ModelFile &file, CheckedModel &model, Diagnostics &diags);

} // namespace megalith
#endif
