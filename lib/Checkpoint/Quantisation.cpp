// What `quantization_config` says.
#include "megalith/Checkpoint/Quantisation.h"
#include "megalith/Json/JsonText.h"
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <regex>
#include <set>

namespace megalith {

using nlohmann::json;

//===--- config.json ----------------------------------------------------------===//

/// Parts between dots.
static std::vector<std::string_view> partsOf(std::string_view name) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    parts.push_back(name.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

bool Quantisation::Pattern::matches(const std::string &module) const {
  if (regex)
    try {
      std::smatch match;
      return std::regex_search(module, match, *static_cast<const std::regex *>(regex.get()),
                               std::regex_constants::match_continuous);
    } catch (const std::regex_error &) { // too long: the tensors say what it is
      return false;
    }
  const auto all = partsOf(module), own = partsOf(text);
  return std::search(all.begin(), all.end(), own.begin(), own.end()) != all.end();
}

/// Reads one `quantization_config`.
class Quantisation::Reader {
public:
  Reader(const json &object, const ConfigFile &config, std::vector<Problem> &problems)
      : object(object), config(config), problems(problems) {}

  std::optional<Quantisation> read() {
    const size_t before = problems.size();
    if (!object.is_object())
      return problem("", "is no object"), std::nullopt;
    const json method = get("quant_method");
    result.Method = method.is_string() ? method.get<std::string>() : "";
    if (const json again = get("method"); !result.Method.empty()) // of gptqmodel
      only("method", again, {result.Method.c_str()});
    if (result.Method == "fp8" || result.Method == "fbgemm_fp8")
      readFp8();
    else if (result.Method == "compressed-tensors")
      readCompressed();
    else if (result.Method == "awq")
      readAwq();
    else if (result.Method == "gptq")
      readGptq();
    else
      problem(method.is_null() ? "" : "quant_method",
              fmt::format("{}; `fp8`, `fbgemm_fp8`, `compressed-tensors`, `awq` and `gptq` are supported",
                          method.is_null() ? std::string("has no `quant_method`")
                                           : fmt::format("`{}` is not supported", jsonShort(method))));
    if (problems.size() != before)
      return std::nullopt;
    return std::move(result);
  }

private:
  static constexpr const char *Root = "quantization_config";

  bool problem(const std::string &key, std::string text) {
    problems.push_back({key.empty() ? Root : fmt::format("{}.{}", Root, key), std::move(text)});
    return false;
  }
  void understood(const std::string &key) { result.Keys.push_back(fmt::format("{}.{}", Root, key)); }
  /// A member, which is understood from now on; null when it is not there.
  json get(const std::string &key) {
    understood(key);
    const auto found = object.find(key);
    return found == object.end() ? json() : *found;
  }
  /// Members that say how the codes were found, or how to run them, and not what they mean.
  void harmless(std::initializer_list<const char *> keys) {
    for (const char *key : keys)
      understood(key);
  }
  /// A flag, or `otherwise`.
  bool flag(const std::string &key, bool otherwise) {
    const json value = get(key);
    if (value.is_null())
      return otherwise;
    if (value.is_boolean())
      return value.get<bool>();
    problem(key, fmt::format("must be true or false, found `{}`", jsonShort(value)));
    return otherwise;
  }
  /// A whole number by one of two names, and the name that it has.
  struct Number {
    std::string key;
    std::optional<int64_t> value;
    bool wrong = false; ///< it was told
  };
  Number number(const std::string &key, const std::string &other = "") {
    const json first = get(key), second = other.empty() ? json() : get(other);
    Number found{first.is_null() && !second.is_null() ? other : key, std::nullopt};
    const json &value = first.is_null() ? second : first;
    found.value = wholeNumber(value);
    found.wrong = !value.is_null() && !found.value;
    if (found.wrong)
      problem(found.key, fmt::format("must be a whole number from -1 to {}, found `{}`", mostSize, jsonShort(value)));
    return found;
  }
  static constexpr int64_t mostSize = 1 << 20;
  static std::optional<int64_t> wholeNumber(const json &value) {
    return value.is_number_integer() && value >= -1 && value <= mostSize ? std::optional(value.get<int64_t>())
                                                                         : std::nullopt;
  }
  /// The members of an object in the order of the file: the first one that matches counts.
  std::vector<std::pair<std::string, json>> inOrder(const json &of, const std::string &key) {
    std::vector<std::pair<std::string, json>> members;
    for (const auto &[name, value] : of.items())
      members.emplace_back(name, value);
    const auto place = [&](const std::string &name) {
      const auto found = config.source().places.find(fmt::format("{}.{}.{}", Root, key, name));
      return found == config.source().places.end() ? std::pair(0u, 0u)
                                                   : std::pair(found->second.line, found->second.column);
    };
    std::stable_sort(members.begin(), members.end(),
                     [&](const auto &a, const auto &b) { return place(a.first) < place(b.first); });
    return members;
  }
  /// What is asked and not done.
  void only(const std::string &key, const json &value, std::initializer_list<const char *> words) {
    if (!value.is_null() && std::none_of(words.begin(), words.end(), [&](const char *word) { return value == word; }))
      problem(key, fmt::format("`{}` is not supported, only `{}`", jsonShort(value), fmt::join(words, "`, `")));
  }
  void refused(const std::string &key, const char *why) {
    const json value = get(key);
    if (!value.is_null() && value != false && !(value.is_structured() && value.empty()))
      problem(key, fmt::format("{} not supported", why));
  }

  /// Whether a match could take very long: by many repetitions, or by one of a group that has some itself.
  static bool isLong(const std::string &expression) {
    int repetitions = 0;
    std::vector<bool> repeats{false}; // in each open group
    for (size_t i = 0; i < expression.size(); ++i) {
      const char c = expression[i];
      if (c == '\\') {
        ++i;
      } else if (c == '(') {
        repeats.push_back(false);
      } else if (c == ')' && repeats.size() > 1) {
        const bool inside = repeats.back();
        repeats.pop_back();
        const char next = i + 1 < expression.size() ? expression[i + 1] : ' ';
        if (inside && (next == '*' || next == '+' || next == '{'))
          return true;
        repeats.back() = repeats.back() || inside;
      } else if (c == '*' || c == '+' || c == '{') {
        ++repetitions;
        repeats.back() = true;
      }
    }
    return expression.size() > 1000 || repetitions > 4;
  }

  std::optional<Pattern> pattern(const std::string &key, const json &text, const std::string &expression,
                                 const std::string &plain) {
    if (expression.empty())
      return Pattern{plain, nullptr};
    try {
      if (isLong(expression))
        throw std::regex_error(std::regex_constants::error_complexity);
      return Pattern{plain, std::make_shared<std::regex>(expression)};
    } catch (const std::regex_error &) {
      problem(key,
              fmt::format("`{}` is a regular expression that is not understood, or could take long", jsonShort(text)));
      return std::nullopt;
    }
  }
  /// A list of modules that are left out, as transformers reads it: whole parts of names, or regular expressions from
  /// the start to a dot or the end.
  void readSkipped(const std::string &key) {
    const json list = get(key);
    if (list.is_null())
      return;
    if (!list.is_array()) {
      problem(key, "must be a list of names");
      return;
    }
    for (const json &item : list) {
      if (!item.is_string()) {
        problem(key, fmt::format("must be a list of names, found `{}` in it", jsonShort(item)));
        return;
      }
      const std::string text = item;
      const bool isRegex = text.find_first_of("*+?[](){}|^$\\") != std::string::npos;
      if (auto read = pattern(key, item, isRegex ? fmt::format("(?:{})(?=\\.|$)", text) : "", text))
        result.Skipped.push_back(*read);
    }
  }

  /// How many columns share a scale: -1 all of them.
  int64_t groupSize(const std::string &key, const Number &size) {
    if (!size.value || *size.value == -1)
      return 0;
    if (*size.value < 32 || *size.value % 32 != 0)
      problem(key, fmt::format("`{}`: groups must be multiples of 32 columns, or -1 for all", *size.value));
    return *size.value;
  }
  std::optional<WeightFormat> unsignedBits(const std::string &key, const Number &bits) {
    if (bits.value == 4)
      return WeightFormat::U4;
    if (bits.value == 8)
      return WeightFormat::U8;
    if (!bits.wrong)
      problem(key, bits.value ? fmt::format("codes of {} bits are not supported; 4 and 8 are", *bits.value)
                              : std::string("is missing"));
    return std::nullopt;
  }

  void readFp8() {
    Group group;
    group.scheme.format = WeightFormat::E4m3;
    result.Activations = true;
    harmless({"dequantize", "is_checkpoint_fp8_serialized", "scale_fmt"});
    refused("kv_cache_quant_algo", "a format of K and V is");
    if (result.Method == "fbgemm_fp8") {
      harmless({"activation_scale_ub"}); // of activations
      group.scheme.scaleRows = 1;
    } else {
      only("activation_scheme", get("activation_scheme"), {"dynamic"});
      only("fmt", get("fmt"), {"e4m3"});
      only("expert_dtype", get("expert_dtype"), {"fp8"}); // transformers says it of models without experts, too
      refused("weight_scale_semantics", "scales that divide are"); // of gptqmodel
      refused("modules_to_convert", "a list of the modules that are quantised is");
      const json block = get("weight_block_size");
      group.openBlocks = block.is_null();
      if (!block.is_null())
        readBlock("weight_block_size", block, group.scheme);
    }
    readSkipped("modules_to_not_convert");
    readSkipped("ignored_layers");
    result.Rules.push_back(Rule{{}, group});
  }
  bool readBlock(const std::string &key, const json &block, WeightScheme &scheme) {
    if (!block.is_array() || block.size() != 2 || !block[0].is_number_integer() || !block[1].is_number_integer() ||
        block[0] < 1 || block[1] < 1 || block[0] > 1 << 20 || block[1] > 1 << 20)
      return problem(key, fmt::format("must be two sizes, found `{}`", jsonShort(block)));
    scheme.scaleRows = block[0];
    scheme.scaleColumns = block[1];
    return scheme.scaleColumns % 32 == 0 ||
           problem(key, fmt::format("`{}`: blocks must be multiples of 32 columns", jsonShort(block)));
  }

  /// What auto-round writes beside the keys of AWQ and GPTQ.
  void readAutoRound() {
    only("data_type", get("data_type"), {"int"});
    refused("static_kv_dtype", "a format of K and V is");
    harmless({"provider", "autoround_version", "amp", "iters", "lr", "minmax_lr", "nsamples", "seqlen", "scale_dtype",
              "supported_types", "enable_quanted_input", "enable_minmax_tuning", "enable_norm_bias_tuning",
              "gradient_accumulate_steps", "low_gpu_mem_usage", "quant_block_list", "to_quant_block_names",
              "static_attention_granularity", "static_kv_granularity"});
  }

  void readAwq() {
    Group group;
    group.layout = CodeLayout::PackedAwq;
    harmless({"meta", "do_fuse", "fuse_max_seq_len", "modules_to_fuse", "exllama_config", "backend", "sym", "desc_act",
              "batch_size", "dataset", "model_name_or_path"});
    readAutoRound();
    json version = get("version");
    if (version.is_string()) {
      std::string lower = version;
      std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
      version = lower;
    }
    only("version", version, {"gemm"});
    only("checkpoint_format", get("checkpoint_format"), {"gemm"});
    only("format", get("format"), {"gemm"});
    only("pack_dtype", get("pack_dtype"), {"int32"});
    flag("lm_head", false); // the tensors say it, too
    group.scheme.zeros = flag("zero_point", true);
    group.symmetric = !group.scheme.zeros; // then `qzeros` has the middle
    const Number bits = number("bits", "w_bit"), size = number("group_size", "q_group_size");
    if (bits.value && *bits.value != 4)
      problem(bits.key, fmt::format("codes of {} bits are not supported; 4 are", *bits.value));
    group.scheme.format = WeightFormat::U4;
    group.scheme.scaleRows = 1;
    group.scheme.scaleColumns = groupSize(size.key, size);
    readSkipped("modules_to_not_convert");
    result.Rules.push_back(Rule{{}, group});
  }

  void readGptq() {
    Group group;
    harmless({"damp_percent",
              "damp_auto_increment",
              "static_groups",
              "true_sequential",
              "model_name_or_path",
              "model_file_base_name",
              "use_cuda_fp16",
              "max_input_length",
              "cache_block_outputs",
              "dataset",
              "tokenizer",
              "backend",
              "batch_size",
              "block_name_to_quantize",
              "disable_exllama",
              "exllama_config",
              "model_seqlen",
              "module_name_preceding_first_block",
              "pad_token_id",
              "use_exllama",
              "mse",

              "offload_to_disk",
              "act_group_aware",
              "hyb_act",
              "failsafe",
              "vram_strategy",
              "calibration_data_min_length",
              "gptaq",
              "pack_impl",
              "is_marlin_format",
              "modules_in_block_to_quantize",
              "process",
              "uri",
              "quantizer"});
    readAutoRound();
    const json layout = firstOf("checkpoint_format", "format");
    only("checkpoint_format", layout, {"gptq", "gptq_v2", "gptq_p"});
    group.layout = layout.is_null() || layout == "gptq" ? CodeLayout::PackedGptq1 : CodeLayout::PackedGptq;
    only("pack_dtype", get("pack_dtype"), {"int32"});
    refused("adapter", "an adapter is");
    refused("rotation", "a rotation of what products take is");
    const json meta = get("meta");
    const json writers = meta.is_object() ? meta.value("quantizer", json()) : json();
    for (const json &writer : writers.is_array() ? writers : json::array({writers}))
      if (writer.is_string() && writer.get<std::string>().starts_with("gptqmodel"))
        result.ByGptqModel = true;
    readGptqGroup(group, *this, "");
    const json dynamic = get("dynamic");
    if (!dynamic.is_null() && dynamic != false && !dynamic.is_object())
      problem("dynamic", "must be an object");
    for (const auto &[name, settings] : inOrder(dynamic.is_object() ? dynamic : json::object(), "dynamic")) {
      const bool leaves = name.starts_with("-:");
      const std::string expression = leaves || name.starts_with("+:") ? name.substr(2) : name;
      auto target = pattern("dynamic", name, expression, name);
      if (!target)
        continue;
      if (leaves) {
        result.Rules.push_back(Rule{{*target}, std::nullopt});
        continue;
      }
      Group own = group;
      Reader inner(settings, config, problems);
      if (!settings.is_object()) {
        problem("dynamic", fmt::format("`{}` must be an object", name));
        continue;
      }
      readGptqGroup(own, inner, "dynamic");
      for (const auto &[key, value] : settings.items())
        if (key != "bits" && key != "group_size" && key != "sym" && key != "desc_act" && key != "damp_percent" &&
            key != "mse")
          problem("dynamic", fmt::format("`{}` of `{}` is not understood", key, name));
      result.Rules.push_back(Rule{{*target}, own});
    }
    flag("lm_head", false); // the tensors say it, too
    readSkipped("modules_to_not_convert");
    result.Rules.push_back(Rule{{}, group});
  }
  json firstOf(const std::string &key, const std::string &other) {
    const json first = get(key), second = get(other);
    return first.is_null() ? second : first;
  }
  /// Of the file, or of an entry of `dynamic`, whose problems are told of `at`.
  void readGptqGroup(Group &group, Reader &from, const std::string &at) {
    const auto key = [&](const char *name) { return at.empty() ? std::string(name) : at; };
    const Number bits = from.number("bits"), size = from.number("group_size");
    if (bits.value || at.empty())
      if (auto format = unsignedBits(key("bits"), bits))
        group.scheme.format = *format;
    if (size.value || at.empty())
      group.scheme.scaleColumns = groupSize(key("group_size"), size);
    group.scheme.scaleRows = 1;
    group.symmetric = from.flag("sym", at.empty() ? true : group.symmetric);
    group.scheme.zeros = !group.symmetric;
    // With one group an order of columns changes nothing.
    group.scheme.ordered = from.flag("desc_act", group.scheme.ordered) && group.scheme.scaleColumns > 0;
  }

  void readCompressed() {
    harmless({"quantization_status", "global_compression_ratio", "version"});
    const json format = get("format");
    refused("transform_config", "transforms are");
    const json sparsity = get("sparsity_config");
    if (sparsity.is_object() && !sparsity.empty() && sparsity.value("format", json()) != "dense")
      problem("sparsity_config", "sparse weights are not supported");
    if (const json scheme = get("kv_cache_scheme"); scheme.is_object()) {
      if (scheme.value("type", json()) != "float" || scheme.value("num_bits", json()) != 8)
        problem("kv_cache_scheme", "K and V are supported as FP8 only (`type: float`, `num_bits: 8`)");
      result.ScalesKv = true;
    } else {
      refused("kv_cache_scheme", "this is");
    }
    const json groups = get("config_groups"), ignored = get("ignore");
    if (!groups.is_object() || groups.empty()) {
      problem("config_groups", "must be an object with a group at least");
      return;
    }
    std::vector<std::pair<int, Rule>> rules; // by how special a target is
    for (const auto &[name, group] : inOrder(groups, "config_groups")) {
      const std::string at = "config_groups." + name;
      if (!group.is_object()) {
        problem("config_groups", fmt::format("`{}` must be an object", name));
        continue;
      }
      for (const auto &[key, value] : group.items())
        if (key != "weights" && key != "targets" && key != "input_activations" && key != "output_activations" &&
            key != "format")
          problem("config_groups", fmt::format("`{}` of `{}` is not understood", key, name));
      const json own = group.value("format", json());
      const auto read = readGroup(group, !own.is_null() ? own : format);
      if (!read)
        continue;
      const json targets = group.value("targets", json());
      if (!targets.is_array() || targets.empty())
        problem("config_groups", fmt::format("`{}` has no `targets`", name));
      for (const json &target : targets) {
        if (!target.is_string()) {
          problem("config_groups", fmt::format("`{}` has the target `{}`, which is no name", name, jsonShort(target)));
          continue;
        }
        const std::string text = target;
        const bool isRegex = text.starts_with("re:"), isClass = text == "Linear";
        Rule rule;
        rule.group = *read;
        if (!isClass)
          if (auto one = pattern("config_groups", target, isRegex ? text.substr(3) : "^" + escaped(text) + "$", text))
            rule.targets.push_back(*one);
        rules.push_back({isClass ? 2 : isRegex ? 1 : 0, std::move(rule)});
      }
    }
    std::stable_sort(rules.begin(), rules.end(), [](const auto &a, const auto &b) { return a.first < b.first; });
    for (auto &[rank, rule] : rules)
      result.Rules.push_back(std::move(rule));
    if (!ignored.is_null() && !ignored.is_array())
      problem("ignore", "must be a list of names");
    for (const json &item : ignored.is_array() ? ignored : json::array()) {
      if (!item.is_string()) {
        problem("ignore", fmt::format("must be a list of names, found `{}` in it", jsonShort(item)));
        continue;
      }
      const std::string text = item;
      if (auto one =
              pattern("ignore", item, text.starts_with("re:") ? text.substr(3) : "^" + escaped(text) + "$", text))
        result.Skipped.push_back(*one);
    }
  }
  static std::string escaped(const std::string &text) {
    std::string out;
    for (char c : text)
      out += std::isalnum(static_cast<unsigned char>(c)) || c == '_' ? std::string(1, c) : std::string("\\") + c;
    return out;
  }

  std::optional<Group> readGroup(const json &group, const json &format) {
    const json weights = group.value("weights", json());
    if (!weights.is_object())
      return problem("config_groups", "a group without `weights` is not supported"), std::nullopt;
    const auto text = [&](const char *key) { return weights.value(key, json()); };
    const auto wrong = [&](const char *key) {
      problem("config_groups", fmt::format("`weights`: `{}` `{}` is not supported", key, jsonShort(text(key))));
      return std::nullopt;
    };
    static const std::set<std::string> known = {
        "num_bits",        "type",     "strategy", "group_size",      "symmetric",   "dynamic",
        "block_structure", "actorder", "observer", "observer_kwargs", "scale_dtype", "zp_dtype"};
    for (const auto &[key, value] : weights.items())
      if (!known.count(key))
        return problem("config_groups", fmt::format("`{}` of `weights` is not understood", key)), std::nullopt;
    if (text("dynamic") != false && !text("dynamic").is_null())
      return wrong("dynamic");
    const json activations = group.value("input_activations", json());
    if (activations.is_object()) {
      if (activations.value("type", json()) != "float")
        return problem("config_groups", "activations of whole numbers are not supported"), std::nullopt;
      if (activations.value("dynamic", json()) != true)
        return problem("config_groups", "activations with scales of the file (`dynamic: false`) are not supported"),
               std::nullopt;
      result.Activations = true;
    }
    if (!group.value("output_activations", json()).is_null())
      return problem("config_groups", "quantised outputs are not supported"), std::nullopt;
    Group out;
    out.symmetric = weights.value("symmetric", json()) != false;
    const json strategy = text("strategy"), bits = text("num_bits"), structure = text("block_structure");
    const bool isFloat = text("type") == "float";
    if (isFloat ? bits != 8 : text("type") != "int")
      return wrong(isFloat ? "num_bits" : "type");
    if (!isFloat && bits != 4 && bits != 8)
      return wrong("num_bits");
    out.scheme.format = isFloat ? WeightFormat::E4m3 : bits == 4 ? WeightFormat::U4 : WeightFormat::U8;
    out.layout = isFloat ? CodeLayout::Bytes : CodeLayout::PackedRows;
    if (isFloat ? format != "float-quantized" && format != "naive-quantized" : format != "pack-quantized") {
      problem("format",
              fmt::format("`{}` is not supported for codes of type `{}`", jsonShort(format), jsonShort(text("type"))));
      return std::nullopt;
    }
    if (isFloat && !out.symmetric)
      return wrong("symmetric");
    out.scheme.zeros = !out.symmetric;
    if (strategy == "tensor") {
      if (!isFloat)
        return wrong("strategy");
    } else if (strategy == "channel") {
      out.scheme.scaleRows = 1;
    } else if (strategy == "group") {
      const json size = text("group_size");
      out.scheme.scaleRows = 1;
      if (!wholeNumber(size))
        return wrong("group_size");
      out.scheme.scaleColumns = groupSize("config_groups", {"config_groups", wholeNumber(size)});
    } else if (strategy == "block" && isFloat) {
      if (!readBlock("config_groups", structure, out.scheme))
        return std::nullopt;
    } else {
      return wrong("strategy");
    }
    const json order = text("actorder"); // "static", "weight": codes lie in groups of neighbours all the same
    out.scheme.ordered = (order == "group" || order == "dynamic" || order == true) && out.scheme.scaleColumns > 0;
    return out;
  }

  const json &object;
  const ConfigFile &config;
  std::vector<Problem> &problems;
  Quantisation result;
};

std::optional<Quantisation> Quantisation::read(const ConfigFile &config, std::vector<Problem> &problems) {
  const auto found = config.raw().find("quantization_config");
  if (found == config.raw().end() || found->is_null())
    return std::nullopt;
  return Reader(*found, config, problems).read();
}

const Quantisation::Group *Quantisation::groupOf(const std::string &module) const {
  const auto any = [&](const std::vector<Pattern> &patterns) {
    return std::any_of(patterns.begin(), patterns.end(), [&](const Pattern &one) { return one.matches(module); });
  };
  if (any(Skipped))
    return nullptr;
  for (const Rule &rule : Rules)
    if (rule.targets.empty() || any(rule.targets))
      return rule.group ? &*rule.group : nullptr;
  return nullptr;
}

WeightScheme Quantisation::schemeFor(WeightScheme scheme, int64_t columns) {
  if (scheme.scaleColumns >= columns && scheme.scaleRows == 1)
    scheme.scaleColumns = 0;
  if (!scheme.scaleColumns)
    scheme.ordered = false;
  return scheme;
}

bool Quantisation::isScaleOfKv(std::string_view tensor) {
  const std::string_view last = tensor.substr(tensor.rfind('.') + 1);
  return last == "k_scale" || last == "v_scale" || last == "kv_scale";
}

WeightScheme Quantisation::schemeOf(const std::string &module, int64_t columns) const {
  const Group *group = groupOf(module);
  return group ? schemeFor(group->scheme, columns) : WeightScheme();
}

} // namespace megalith
