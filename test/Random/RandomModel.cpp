#include "RandomModel.h"
#include <algorithm>
#include <cctype>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace megalith::random_models {
namespace {

/// Expressions are text. One that is used twice must have a name, so `named` makes
/// a statement of it; `maybe` does so by chance.
class Generator {
public:
  explicit Generator(uint64_t seed) : random(seed * 0x9e3779b97f4a7c15u + 1) {}

  RandomModel make() {
    chooseSizes();
    std::vector<std::string> before, body, after;
    hasRepeat = !chance(8);
    attentionPlace = chance(3) ? Nowhere : !hasRepeat || chance(92) ? Inside : chance(50) ? Before : After;
    out = &before;
    inLayers = false;
    std::string x = embedding();
    if (attentionPlace == Before) {
      x = named(x);
      x = residual(x, attentionOf(normed(x)));
    }
    if (chance(10)) {
      x = named(x);
      x = residual(x, mlp(normed(x), hidden));
    }
    initial = named(x);
    std::string carried = initial;
    if (hasRepeat) {
      carried = freshName();
      before.push_back(fmt::format("{}: {}", carried, initial));
      second = chance(12) ? freshName() : "";
      if (!second.empty())
        before.push_back(fmt::format("{}: {}", second, chance(50) ? initial : initial + " * 0.25"));
      out = &body;
      inLayers = true;
      repeatBody(carried);
    } else {
      for (int i = 1 + below(2), first = i; i > 0; --i)
        carried = named(block(carried, attentionPlace == Inside && i == first));
    }
    out = &after;
    inLayers = false;
    carriedOut = carried;
    head();
    shuffleStatements(body, {carried, second});
    shuffleStatements(after, {"logits"});
    return write(before, body, after);
  }

private:
  //===--- chance ---------------------------------------------------------===//

  uint64_t below(uint64_t n) { return random() % n; }
  int64_t range(int64_t low, int64_t high) { return low + static_cast<int64_t>(below(high - low + 1)); }
  bool chance(unsigned percent) { return below(100) < percent; }
  template <class T> T oneOf(std::initializer_list<T> list) { return list.begin()[below(list.size())]; }
  template <class T> void shuffle(std::vector<T> &list) {
    for (size_t i = list.size(); i > 1; --i)
      std::swap(list[i - 1], list[below(i)]);
  }

  /// Another order of the statements in front of the first that assigns one of
  /// `last`; each stays behind those that it reads.
  void shuffleStatements(std::vector<std::string> &statements, const std::set<std::string> &last) {
    auto nameOf = [](const std::string &s) { return s.substr(0, s.find(':')); };
    auto end =
        std::find_if(statements.begin(), statements.end(), [&](const std::string &s) { return last.count(nameOf(s)); });
    std::vector<std::string> waiting(statements.begin(), end), ordered;
    while (!waiting.empty()) {
      size_t pick = below(waiting.size());
      std::set<std::string> reads = wordsOf(waiting[pick].substr(waiting[pick].find(':')));
      if (std::any_of(waiting.begin(), waiting.end(), [&](const std::string &s) { return reads.count(nameOf(s)); }))
        continue;
      ordered.push_back(waiting[pick]);
      waiting.erase(waiting.begin() + pick);
    }
    std::copy(ordered.begin(), ordered.end(), statements.begin());
  }

  static std::set<std::string> wordsOf(const std::string &text) {
    std::set<std::string> words;
    std::string word;
    for (char c : text + " ") {
      if (std::isalnum(static_cast<unsigned char>(c)) || c == '_')
        word += c;
      else if (std::string whole = std::exchange(word, ""); !whole.empty() && c != '(')
        words.insert(whole); // not a function
    }
    return words;
  }

  //===--- names ----------------------------------------------------------===//

  std::string freshName() {
    // Words that mean something elsewhere must be harmless as names.
    static const char *words[] = {"row",   "c",       "c0",     "y1",     "pair",   "tile",      "part",    "p",
                                  "pass",  "b",       "best",   "keys",   "values", "partner",   "int",     "float",
                                  "class", "this",    "return", "const",  "switch", "position_", "numRows", "context",
                                  "q",     "k",       "v",      "h",      "sum",    "out",       "carried", "map",
                                  "add",   "round",   "stage",  "state",  "goto_",  "Buffers",   "lane",    "auto",
                                  "mul",   "inBlock", "logit",  "stream", "head",   "body",      "forward", "cos"};
    for (;;) {
      std::string name;
      if (chance(30)) {
        name = words[below(std::size(words))];
      } else {
        static const char *syllables[] = {"ka", "to", "mi", "Re", "x", "w_", "n", "zu", "Q", "e"};
        for (int64_t i = range(1, 3); i > 0; --i)
          name += syllables[below(std::size(syllables))];
        if (chance(50))
          name += std::to_string(below(100));
      }
      if (taken.insert(name).second)
        return name;
    }
  }

  /// Makes a statement of the expression and returns its name.
  std::string named(const std::string &expr) {
    if (expr.find_first_of(" (*+/-[") == expr.npos)
      return expr;
    std::string name = freshName();
    out->push_back(fmt::format("{}: {}", name, expr));
    return name;
  }
  std::string maybe(const std::string &expr) { return chance(50) ? named(expr) : expr; }

  //===--- sizes and config -----------------------------------------------===//

  struct Config {
    std::string name, key, value, fallback;
  };

  void chooseSizes() {
    hidden = oneOf<int64_t>({32, 32, 40, 48, 64, 36, 50, 33});
    dim = oneOf<int64_t>({16, 16, 32});
    kvHeads = range(1, 2);
    heads = kvHeads * range(1, dim == 16 ? 4 : 2);
    ffn = oneOf<int64_t>({24, 40, 64, 72, 33, 50, 96});
    vocab = range(33, 48);
    layers = range(1, 3);
    hiddenName = config("", hidden);
    vocabName = config("", vocab);
    ffnName = config("", ffn);
    headsName = config("", heads);
    kvHeadsName = config("", kvHeads);
    dimName = config("head_dim", dim, chance(40) ? fmt::format("{} / {}", dim * heads, headsName) : "");
    config("layers", layers);
    epsName = chance(60) ? config("", 0) : "";
    if (!epsName.empty())
      configs.back().value = chance(50) ? "1e-05" : "0.000001";
  }

  /// Adds a number of config.json under a name (empty: some name).
  std::string config(std::string name, int64_t value, const std::string &fallback = "") {
    if (name.empty())
      name = freshName();
    taken.insert(name);
    configs.push_back({name, chance(50) ? name + "_key" : freshName(), std::to_string(value), fallback});
    return name;
  }

  std::string eps() { return epsName.empty() || chance(20) ? "1e-5" : epsName; }

  //===--- weights --------------------------------------------------------===//

  struct Weight {
    std::string name, shape, from, alias;
    bool layer;
  };

  std::string weight(const std::string &shape, double mean) {
    Weight w;
    w.name = freshName();
    w.shape = shape;
    w.layer = inLayers && !chance(8);
    w.from = w.layer ? fmt::format("m.{{i}}.{}.weight", w.name) : fmt::format("{}.weight", w.name);
    means[w.name] = mean;
    weights.push_back(w);
    return w.name;
  }
  std::string size(int64_t n, const std::string &name) { return chance(70) ? name : std::to_string(n); }
  std::string vectorOf(const std::string &n, double mean) { return weight(fmt::format("[{}]", n), mean); }

  //===--- operations -----------------------------------------------------===//

  /// matmul(x, w), perhaps with a bias.
  std::string linear(const std::string &x, const std::string &outs, const std::string &ins,
                     const std::string &biasBlock = "") {
    std::string w = weight(fmt::format("[{}, {}]", outs, ins), 0);
    std::string product = fmt::format("matmul({}, {})", x, w);
    if (chance(3)) // one weight, two products
      product = fmt::format("(matmul({0}, {1}) - 0.3 * matmul({0}, {1}))", named(x), w);
    if (!chance(25))
      return product;
    // A shorter vector repeats.
    std::string bias = vectorOf(!biasBlock.empty() && chance(20) ? biasBlock : outs, 0);
    if (chance(20))
      product = named(product); // an addition of its own
    return chance(50) ? fmt::format("({} + {})", product, bias) : fmt::format("({} + {})", bias, product);
  }

  std::string norm(const std::string &x, const std::string &length, bool mayBeLayerNorm = true) {
    if (mayBeLayerNorm && chance(25))
      return fmt::format("layer_norm({}, {}, {}, {})", x, gainOf(length), vectorOf(length, 0), eps());
    const char *once = chance(20) ? ", once=true" : "";
    return fmt::format("rms_norm({}, {}, {}{})", x, gainOf(length), eps(), once);
  }

  /// What a norm multiplies by, about 1.
  std::string gainOf(const std::string &length) {
    if (chance(75))
      return vectorOf(length, 1);
    std::string vector = fmt::format("1 + {}", vectorOf(length, 0));
    return chance(30) ? named(vector) : vector;
  }

  /// The norm of a value of `hidden` columns.
  std::string normed(const std::string &x) {
    bool groups = hidden % 2 == 0 && chance(8);
    return named(norm(x, groups ? fmt::format("{} / 2", hiddenName) : size(hidden, hiddenName)));
  }

  std::string activation(const std::string &x) {
    switch (below(12)) {
    case 0:
    case 1:
    case 2:
      return fmt::format("silu({})", x);
    case 3:
      return fmt::format("gelu({})", x);
    case 4:
      return fmt::format("gelu_tanh({})", x);
    case 5:
      return fmt::format("relu({})", x);
    case 6:
      return fmt::format("sigmoid({})", x);
    case 7:
      return fmt::format("({0} * {0})", named(fmt::format("relu({})", x)));
    case 8: {
      std::string y = named(x);
      return fmt::format("({} / (1.0 + exp(neg({}))))", y, y);
    }
    case 9:
      return fmt::format("min(max({}, -2.0), 2.5)", x);
    case 10: {
      std::string y = named(x);
      return fmt::format("({} * rsqrt({} * {} + 1.0))", y, y, y);
    }
    default:
      return fmt::format("(4.0 * tanh({} / 4.0))", x);
    }
  }

  /// A value of `hidden` columns out of one of `ins` columns.
  std::string mlp(const std::string &h, int64_t ins) {
    std::string in = std::to_string(ins), wide = size(ffn, ffnName), middle;
    if (chance(70)) {
      std::string gate = maybe(linear(h, wide, in)), up;
      if (chance(8))
        up = gate = named(gate); // one product, used twice
      else
        up = maybe(linear(h, wide, in));
      gate = activation(gate);
      middle = chance(50) ? fmt::format("{} * {}", gate, up) : fmt::format("{} * {}", up, gate);
    } else {
      middle = activation(linear(h, wide, in));
    }
    if (chance(15))
      middle = norm(maybe("(" + middle + ")"), wide);
    return linear(maybe(middle), size(hidden, hiddenName), wide);
  }

  std::string rope(const std::string &x) {
    if (!usesRope) { // all of a graph turn alike
      const int way = below(10);
      if (way < 3)
        ropeArguments = way == 0 ? ", dims=4" : way == 1 ? ", dims=8" : ", dims=12";
      if (chance(20))
        ropeArguments += ", interleaved=true";
      if (inLayers && chance(25))
        ropeArguments += ", where=turns, base=base";
    }
    usesRope = true;
    return fmt::format("rope({}, position{})", x, ropeArguments);
  }

  /// A value of `hidden` columns.
  std::string attentionOf(const std::string &h) {
    std::string in = std::to_string(hidden), wide = size(hidden, hiddenName);
    std::string queries = fmt::format("{} * {}", headsName, dimName),
                keys = fmt::format("{} * {}", kvHeadsName, dimName);
    bool rotate = !chance(15), normFirst = !chance(20), queryNorm = chance(30);
    auto project = [&](const std::string &columns, bool isValue) {
      std::string x = maybe(linear(h, columns, in, dimName));
      bool norms = isValue ? chance(8) : queryNorm;
      if (norms && normFirst)
        x = maybe(norm(x, dimName));
      if (rotate && !isValue)
        x = maybe(rope(x));
      if (norms && !normFirst)
        x = maybe(norm(x, dimName));
      return x;
    };
    // Statements of q, k and v in any order.
    std::string q, k, v;
    std::vector<int> order = {0, 1, 2};
    if (chance(5))
      order.pop_back(); // K and V are one value
    shuffle(order);
    for (int i : order)
      (i == 0 ? q : i == 1 ? k : v) = project(i == 0 ? queries : keys, i == 2);
    if (v.empty())
      v = k = named(k);
    std::string scale = chance(25) ? ", scale=0.2" : "";
    std::string a = maybe(fmt::format("attention({}, {}, {}{})", q, k, v, scale));
    if (chance(10))
      a = maybe(norm(a, dimName));
    return linear(a, wide, queries);
  }

  /// x + y, perhaps with y scaled; `x` is a name.
  std::string residual(const std::string &x, const std::string &y) {
    std::string scaled = y;
    if (chance(10))
      scaled = fmt::format("{} * {}", maybe(y), vectorOf(size(hidden, hiddenName), 1));
    else if (chance(10))
      scaled = fmt::format("0.7 * {}", y);
    else if (chance(6)) // a gate of one column per row
      scaled = fmt::format("sigmoid(matmul({}, {})) * {}", x, weight(fmt::format("[1, {}]", hiddenName), 0), y);
    return chance(70) ? fmt::format("({} + {})", x, scaled) : fmt::format("({} + {})", scaled, x);
  }

  std::string block(const std::string &x, bool attends) {
    std::string h, y;
    switch (below(5)) {
    case 0: // post-norm
      if (attends)
        h = named(norm(residual(x, attentionOf(x)), size(hidden, hiddenName)));
      else
        h = x;
      return norm(residual(h, mlp(h, hidden)), size(hidden, hiddenName));
    case 1: { // parallel
      h = normed(x);
      std::string g = chance(60) ? h : normed(x);
      bool mlpFirst = chance(50);
      std::string m = mlpFirst ? maybe(mlp(g, hidden)) : "";
      std::string a = attends ? maybe(attentionOf(h)) : maybe(mlp(h, hidden));
      if (!mlpFirst)
        m = maybe(mlp(g, hidden));
      switch (below(3)) {
      case 0:
        return fmt::format("{} + {} + {}", x, a, m);
      case 1:
        return fmt::format("{} + ({} + {})", m, x, a);
      default:
        return fmt::format("{} + ({} + {})", x, m, a);
      }
    }
    case 2: // sandwich
      y = attends ? named(residual(x, norm(attentionOf(normed(x)), size(hidden, hiddenName)))) : x;
      return residual(y, norm(mlp(normed(y), hidden), size(hidden, hiddenName)));
    default: // pre-norm
      y = attends ? named(residual(x, attentionOf(normed(x)))) : x;
      return residual(y, mlp(normed(y), hidden));
    }
  }

  void repeatBody(const std::string &x) {
    std::string next = block(x, attentionPlace == Inside);
    if (!second.empty() && chance(25)) { // the two change places
      next = named(next);
      std::string old = freshName();
      out->push_back(fmt::format("{}: {}", old, second));
      out->push_back(fmt::format("{}: {}", second, next));
      out->push_back(fmt::format("{}: {}", x, old));
      return;
    }
    if (!second.empty()) {
      next = named(next);
      out->push_back(fmt::format("{}: {} + 0.5 * {}", second, second, next));
      if (chance(40))
        next = fmt::format("{} + 0.125 * {}", next, second);
    }
    if (chance(8))
      next = fmt::format("{} + 0.0625 * {}", next, initial); // a value from before the layers
    out->push_back(fmt::format("{}: {}", x, next));
  }

  //===--- both ends ------------------------------------------------------===//

  std::string embedding() {
    int64_t columns = chance(10) ? 24 : hidden;
    std::string width = columns == hidden ? size(hidden, hiddenName) : std::to_string(columns);
    embedName = weight(fmt::format("[{}, {}]", vocabName, width), 0);
    tieable = columns == hidden;
    std::string x = embedName + "[tokens]";
    if (chance(15))
      x = fmt::format("{} * {}", x, "5.65");
    if (chance(10))
      x = norm(x, width);
    if (columns != hidden)
      x = linear(x, size(hidden, hiddenName), width);
    return x;
  }

  void head() {
    std::string x = carriedOut;
    if (!second.empty())
      x = fmt::format("{} - {}", x, second);
    if (attentionPlace == After) {
      x = named(x);
      x = named(residual(x, attentionOf(normed(x))));
    }
    if (chance(8)) {
      x = named(x);
      x = residual(x, mlp(normed(x), hidden));
    }
    if (chance(8))
      x = fmt::format("{} + {}", x, initial);
    if (!chance(12))
      x = norm(x, size(hidden, hiddenName));
    std::string lines = weight(fmt::format("[{}, {}]", vocabName, hiddenName), 0);
    tiedName = freshName();
    configs.push_back({tiedName, tiedName, chance(50) ? "true" : "false", ""});
    // `[v, hidden]` and `[v, 32]` are one shape.
    if (tieable)
      weights.back().alias = fmt::format("{} if {}", embedName, tiedName);
    std::string logits = fmt::format("matmul({}, {})", maybe(x), lines);
    if (chance(10))
      logits = fmt::format("{} + {}", logits, vectorOf(vocabName, 0));
    if (chance(15))
      logits = fmt::format("30.0 * tanh(({}) / 30.0)", logits);
    else if (chance(10))
      logits = fmt::format("({}) * 0.5", logits);
    out->push_back("logits: " + logits);
  }

  //===--- text -----------------------------------------------------------===//

  RandomModel write(std::vector<std::string> &before, std::vector<std::string> &body, std::vector<std::string> &after) {
    RandomModel model;
    model.fused = chance(30);
    model.means = means;
    const std::string name = freshName(), config = configSection(model.config), weightText = weightsSection(),
                      graph = graphSection(before, body, after);
    std::vector<std::string> sections = {fmt::format("model: {}\n", name), config, weightText, graph};
    if (model.fused || chance(70))
      sections.push_back(fmt::format("numerics: {}\n", model.fused ? "fused" : "transformers"));
    shuffle(sections);
    model.yaml = fmt::format("{}", fmt::join(sections, "\n"));
    // Keys that nothing reads must be harmless.
    const std::set<std::string> words = wordsOf(weightText + graph);
    std::vector<std::string> unread;
    for (const Config &c : configs)
      if (!words.count(c.name))
        unread.push_back(c.key);
    if (!unread.empty())
      model.yaml += fmt::format("\nharmless: {{keys: [{}]}}\n", fmt::join(unread, ", "));
    return model;
  }

  std::string configSection(std::string &json) {
    std::string text = "config:\n", rope;
    std::vector<std::string> members;
    for (const Config &c : configs) {
      bool leftOut = !c.fallback.empty() && chance(50);
      if (!leftOut)
        members.push_back(fmt::format("\"{}\": {}", c.key, c.value));
      if (c.fallback.empty())
        text += fmt::format("  {}: {}\n", c.name, c.key);
      else
        text += fmt::format("  {}: {{key: {}, default: {}}}\n", c.name, c.key, c.fallback);
    }
    if (usesRope) {
      text += "  rope: {theta: rope_theta, scaling: rope_scaling}\n";
      if (ropeArguments.find("turns") != std::string::npos)
        text +=
            "  layer:\n    turns: {default: layer % 2 == 0}\n    base: {default: 70.0 if layer % 3 == 0 else none}\n";
      const char *llama3 = "\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0, "
                           "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 32";
      switch (below(5)) {
      case 0:
        rope = fmt::format("\"rope_parameters\": {{\"rope_theta\": 500.0, {}}}", llama3);
        break;
      case 1:
        rope = fmt::format("\"rope_theta\": 1000, \"rope_scaling\": {{{}}}", llama3);
        break;
      case 2:
        rope = "\"rope_theta\": 10000.0, \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.0}";
        break;
      default:
        rope = "\"rope_theta\": 10000.0";
      }
      members.push_back(rope);
    }
    shuffle(members);
    json = fmt::format("{{{}}}", fmt::join(members, ", "));
    return text;
  }

  /// The embedding stays before the head, which may take its storage.
  std::string weightsSection() {
    shuffle(weights);
    auto at = [&](auto matches) { return std::find_if(weights.begin(), weights.end(), matches); };
    auto embed = at([&](const Weight &w) { return w.name == embedName; });
    auto tied = at([&](const Weight &w) { return !w.alias.empty(); });
    if (tied < embed)
      std::iter_swap(tied, embed);
    std::string text = "weights:\n", layered;
    auto line = [](const Weight &w, const char *indent) {
      return fmt::format("{}{}: {{shape: '{}', from: '{}'{}}}\n", indent, w.name, w.shape, w.from,
                         w.alias.empty() ? "" : ", or: " + w.alias);
    };
    for (const Weight &w : weights)
      if (w.layer)
        layered += line(w, "    ");
    size_t layerAt = below(weights.size());
    for (size_t i = 0; i < weights.size(); ++i) {
      if (i == layerAt && !layered.empty())
        text += "  layer:\n" + layered;
      if (!weights[i].layer)
        text += line(weights[i], "  ");
    }
    return text;
  }

  static std::string graphSection(std::vector<std::string> &before, std::vector<std::string> &body,
                                  std::vector<std::string> &after) {
    std::string text = "graph:\n";
    for (const std::string &s : before)
      text += "  - " + s + "\n";
    if (!body.empty()) {
      text += "  - repeat: layer\n    do:\n";
      for (const std::string &s : body)
        text += "      - " + s + "\n";
    }
    for (const std::string &s : after)
      text += "  - " + s + "\n";
    return text;
  }

  std::mt19937_64 random;
  std::set<std::string> taken = {"tokens", "position", "logits",     "layer", "layers",
                                 "rope",   "head_dim", "rope_theta", "turns", "base"};
  int64_t hidden = 0, dim = 0, heads = 0, kvHeads = 0, ffn = 0, vocab = 0, layers = 0;
  std::string hiddenName, dimName, headsName, kvHeadsName, ffnName, vocabName, epsName, tiedName;
  std::vector<Config> configs;
  std::vector<Weight> weights;
  std::map<std::string, double> means;
  std::string embedName, initial, second, carriedOut, ropeArguments;
  bool tieable = false, usesRope = false, hasRepeat = true, inLayers = false;
  enum { Nowhere, Before, Inside, After } attentionPlace = Inside;
  std::vector<std::string> *out = nullptr;
};

} // namespace

RandomModel makeModel(uint64_t seed) { return Generator(seed).make(); }

} // namespace megalith::random_models
