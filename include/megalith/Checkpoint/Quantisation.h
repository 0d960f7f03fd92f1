//===- Quantisation.h - checkpoints whose weights are codes -----*- C++ -*-===//
//
// `quantization_config` of config.json says how a tool has coded the matrices of a checkpoint. Tools differ in keys, in
// names of tensors, and in how codes lie in words. What comes out of all of them is one form: codes, scales, zero
// points (WeightScheme.h).
//
// Formats, from the tools' own sources (transformers 5, compressed-tensors 0.20, gptqmodel 7, AutoAWQ):
//
//   fp8, fbgemm_fp8       weight F8_E4M3 [N, K]; a scale for the tensor, each row, or blocks
//   compressed-tensors    the same (float-quantized), or weight_packed I32, 4 or 8 bits along K (pack-quantized)
//   awq                   qweight I32 [K, N/8], nibbles of outputs 0, 2, 4, 6, 1, 3, 5, 7
//   gptq                  qweight I32 [K*b/32, N], along K; zero points less one in version 1
//===----------------------------------------------------------------------===//
#ifndef MEGALITH_CHECKPOINT_QUANTISATION_H
#define MEGALITH_CHECKPOINT_QUANTISATION_H

#include "megalith/Checkpoint/ConfigFile.h"
#include "megalith/Checkpoint/SafetensorsFile.h"
#include "megalith/Support/WeightScheme.h"
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace megalith {

/// How codes lie in the checkpoint's tensors.
enum class CodeLayout : uint8_t {
  Bytes,       ///< [N, K], a byte each
  PackedRows,  ///< words of codes along K, [N, words]; zero points along N
  PackedAwq,   ///< [K, words] along N, in AWQ's order
  PackedGptq,  ///< [words, N] along K; zero points along N
  PackedGptq1, ///< the same, with zero points less one
};

/// One coded matrix of a checkpoint. It refers to the tensors of a SafetensorsFile.
struct QuantisedTensor {
  WeightScheme scheme;
  CodeLayout layout = CodeLayout::Bytes;
  int64_t rows = 0, columns = 0;
  const TensorView *codes = nullptr, *scales = nullptr;
  const TensorView *zeroPoints = nullptr;                ///< null: none, or all of them are the middle one
  const TensorView *order = nullptr;                     ///< of each column, the number of its group; null: none
  std::vector<std::pair<std::string, uint64_t>> tensors; ///< all that it is made of, with their bytes

  int64_t scaleRows() const { return scheme.scaleRows ? scheme.scaleRows : rows; }
  int64_t scaleColumns() const { return scheme.scaleColumns ? scheme.scaleColumns : columns; }
  /// Blocks of rows, and of columns.
  int64_t blockRows() const { return (rows + scaleRows() - 1) / scaleRows(); }
  int64_t blockColumns() const { return (columns + scaleColumns() - 1) / scaleColumns(); }

  /// The codes of a row in the checkpoint's order of columns.
  void readCodes(int64_t row, uint8_t *to) const;
  /// [blockRows][blockColumns], exactly as stored.
  std::vector<float> readScales() const;
  /// [blockRows][blockColumns]; those of e4m3 are 0.
  std::vector<uint8_t> readZeroPoints() const;
  /// The columns sorted by their groups, those of one in their order. Empty: as they are.
  std::vector<int32_t> readOrder() const;
};

/// What config.json says of coded weights.
class Quantisation {
public:
  /// Why a checkpoint cannot be read: the key's dotted path, and what is wrong with it.
  struct Problem {
    std::string key, text;
  };
  /// Reads `quantization_config`. Without problems in front, `problems` has none after it when everything it says is
  /// understood. nullopt: it says nothing, or it has problems.
  static std::optional<Quantisation> read(const ConfigFile &config, std::vector<Problem> &problems);

  /// `fp8`
  const std::string &method() const { return Method; }
  /// The tool quantised activations, too; here they stay bf16.
  bool quantisesActivations() const { return Activations; }
  /// The file has scales of K and V. These have others here: one for each token and head, or none in bf16.
  bool scalesKv() const { return ScalesKv; }
  /// Whether a tensor is such a scale.
  static bool isScaleOfKv(std::string_view tensor);
  /// Dotted paths of the keys that are understood.
  const std::vector<std::string> &keys() const { return Keys; }

  /// The scheme of a matrix by the name of its module, as `model.layers.0.mlp.up_proj`; one that is not quantised if
  /// the file leaves it out.
  WeightScheme schemeOf(const std::string &module, int64_t columns) const;
  /// The matrix [rows, columns] of a module whose scheme is quantised, found in `file`. `error`: what is wrong, and
  /// which tensor; the scheme may turn out to be another one where config.json leaves it open.
  std::optional<QuantisedTensor> find(const SafetensorsFile &file, const std::string &module, int64_t rows,
                                      int64_t columns, std::string &error) const;
  /// A tensor beside a module's `weight` that only a quantised one has; empty: there is none.
  static std::string codesBeside(const SafetensorsFile &file, const std::string &module);

private:
  /// What a group of modules has.
  struct Group {
    WeightScheme scheme;
    CodeLayout layout = CodeLayout::Bytes;
    bool symmetric = true;
    bool openBlocks = false; ///< the shape of the scales says what one is for
  };
  /// Names of modules: whole parts between dots, `re:` and a regular expression from the start, or a class.
  struct Pattern {
    std::string text;
    std::shared_ptr<const void> regex; ///< std::regex
    bool matches(const std::string &module) const;
  };
  struct Rule {
    std::vector<Pattern> targets; ///< none: all
    std::optional<Group> group;   ///< none: not quantised
  };
  class Reader;
  class Finder;
  const Group *groupOf(const std::string &module) const;
  /// One group of all columns is none.
  static WeightScheme schemeFor(WeightScheme scheme, int64_t columns);

  std::string Method;
  bool Activations = false, ByGptqModel = false, ScalesKv = false;
  std::vector<std::string> Keys;
  std::vector<Pattern> Skipped;
  std::vector<Rule> Rules; ///< the first one that matches counts
};

} // namespace megalith
#endif
