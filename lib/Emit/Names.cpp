#include "Tensor.h"
#include "llvm/ADT/StringExtras.h"
#include <set>

namespace megalith::emit {

std::string vectorAddress(const plan::Vector &v) {
  return fmt::format("packedVector(p, {}{})", v.offset, v.layers ? fmt::format(" + layer * {}ll", v.bytes) : "");
}

std::map<std::string, int> weightIndices(const ir::Operation &model) {
  std::map<std::string, int> index;
  int next = 0;
  for (const ir::Operation &op : model.region().ops) {
    if (op.op != ir::Op::Weight || op.has("alias"))
      continue;
    index[op.name] = next;
    next += std::max<int64_t>(1, op.getInt("layers"));
  }
  for (const ir::Operation &op : model.region().ops)
    if (op.op == ir::Op::Weight && op.has("alias"))
      index[op.name] = index.at(op.getString("alias"));
  return index;
}

std::string typeName(llvm::StringRef name) {
  std::string out;
  bool upper = true;
  for (char c : name) {
    if (!llvm::isAlnum(c)) {
      upper = true;
      continue;
    }
    out += upper ? llvm::toUpper(c) : c;
    upper = false;
  }
  return out;
}

/// Words of C++, and what the functions of the tensor half say themselves: their
/// variables and the device code's names that stand in them. Numbers at a word's end
/// do not count.
static bool isReserved(llvm::StringRef word) {
  static const std::set<llvm::StringRef> words = {
      "alignas", "alignof", "and", "and_eq", "asm", "auto", "bitand", "bitor", "bool", "break", "case", "catch",
      "char", "class", "co_await", "co_return", "co_yield", "compl", "concept", "const", "const_cast", "consteval",
      "constexpr", "constinit", "continue", "decltype", "default", "delete", "do", "double", "dynamic_cast", "else",
      "enum", "explicit", "export", "extern", "false", "float", "for", "friend", "goto", "if", "inline", "int",
      "linux", "long", "mutable", "namespace", "new", "noexcept", "not", "not_eq", "nullptr", "operator", "or",
      "or_eq", "private", "protected", "public", "register", "reinterpret_cast", "requires", "return", "short",
      "signed", "sizeof", "static", "static_assert", "static_cast", "struct", "switch", "template", "this",
      "thread_local", "throw", "true", "try", "typedef", "typeid", "typename", "union", "unix", "unsigned", "using",
      "virtual", "void", "volatile", "wchar_t", "while", "xor", "xor_eq",
      // macros and variables of CUDA and its headers
      "EOF", "NULL", "assert", "blockDim", "blockIdx", "gridDim", "threadIdx", "warpSize",
      // of the emitted code
      "abi", "add", "aside", "assumeLocal", "attend", "attendWide", "b", "beside", "best", "bestsOf", "blockReduce",
      "c", "chunksOf", "columnOfLane", "consumerSync", "control", "countOperand", "counterAt", "ctaReduce", "div",
      "dropAhead", "dynamicShared", "early", "end", "endOfUnit", "epilogue", "everyRow", "exponential", "finish",
      "firstRow", "forRows", "gelu", "geluTanh", "grid", "gridEdge", "hyperbolicTangent", "inBlock", "inner",
      "instance", "isLaneOfBlock", "kBodySteps", "kConsumerWarps", "kHeadSteps", "kMaxRows", "kTileRows", "kUnitEnd",
      "keep", "keepBelow", "keys", "kv", "kvLayer", "kvStep", "laneId", "lateRows", "layer", "lent", "logit", "made",
      "madeRows", "matrixStep", "maximum", "megalith", "mergeWide", "minimum", "mul", "neg", "numRows", "ofPartner",
      "operand", "operandOf", "out", "own", "ownRows", "p", "pack", "packedVector", "pair", "params", "part",
      "partBegin", "partEnd", "partner", "partnerColumn", "pass", "places", "position", "producer", "publishBest",
      "quarterOfRow", "query", "reciprocalSqrt", "reduce", "relu", "result", "ring", "rope", "rotatePair", "rotated",
      "row", "rowBytes", "rows", "rowsOfCtas", "rowsOrImage", "scratch", "scratchBytes", "set", "setBytes", "shared",
      "sharedOfCta", "sigmoid", "silu", "softplus", "spreadRows", "stageBytes", "stages", "storeLogits", "stream",
      "streamBody", "streamHead", "streamKv", "streamProduct", "streamSegment", "sub", "sum", "sync", "tagged",
      "terms", "then", "tile", "toBf", "u", "unit", "unpack", "unused", "values", "vectorStep", "warpId", "warpMax",
      "warpSum", "weightAt", "what", "wideProduct", "wideRows", "windowSteps", "words", "workspace", "y",
      "Aside", "AttentionShape", "Beside", "Best", "Bf", "Bf16Rows", "Buffers", "ByBarrier", "ByWords", "Columns",
      "Config", "Consumer", "Control", "ControlState", "CtaGroups", "Float", "FloatRows", "Floats", "Gauge",
      "GridEdges", "Images", "KvRows", "LaunchParams", "Layer", "Made", "Metric", "NoAside", "NoKv", "NoSource",
      "Nothing", "OperandImage", "Params", "PassShared", "Producer", "Request", "Ring", "RingShared", "Rope",
      "RowOfWarp", "Rows", "Shared", "State", "Stream", "StreamPlace", "StreamStep", "Turn", "Unchanged",
      "WeightRing", "WeightRows", "WeightVector", "WidePlan", "WindowProducer", "Words"};
  return words.count(word.rtrim("0123456789_")) || word.starts_with("__"); // the compilers' own
}

std::string identifier(llvm::StringRef name) {
  std::string out;
  for (char c : name)
    out += llvm::isAlnum(c) || c == '_' ? c : '_';
  if (out.empty() || llvm::isDigit(out[0]))
    out = "v" + out;
  // `row` and `row_` become `row_` and `row__`: different names stay different.
  return isReserved(out) ? out + "_" : out;
}

std::string madeFunction(const std::string &attention) { return attention + "Made"; }

std::map<const plan::Phase *, std::string> phaseFunctions(const plan::Plan &plan) {
  std::map<const plan::Phase *, std::string> functions;
  std::set<std::string> taken;
  for (const plan::Segment &segment : plan.segments)
    for (const auto *phases : {&segment.before, &segment.repeated, &segment.after})
      for (const plan::Phase &phase : *phases) {
        const std::string base = identifier(plan.model) + typeName(segment.name) + typeName(phase.name);
        std::string name = base;
        for (int n = 2; taken.count(name) || (phase.makes && taken.count(madeFunction(name))); ++n)
          name = base + std::to_string(n);
        taken.insert(name);
        if (phase.makes)
          taken.insert(madeFunction(name));
        functions[&phase] = name;
      }
  return functions;
}

std::vector<StampEvent> stampEvents(const plan::Plan &plan) {
  std::vector<StampEvent> events = {{"control", -1}};
  for (const plan::Segment &segment : plan.segments) {
    for (const plan::Phase &phase : segment.before)
      events.push_back({phase.name, -1});
    for (int64_t layer = 0; layer < segment.repeatCount; ++layer)
      for (const plan::Phase &phase : segment.repeated)
        events.push_back({phase.name, layer});
    for (const plan::Phase &phase : segment.after)
      events.push_back({phase.name, -1});
  }
  events.push_back({"results", -1});
  return events;
}

std::string stampIndex(const plan::Plan &plan, const plan::Phase &phase) {
  if (!plan.knobs.stamps)
    return "";
  size_t next = 1; // control stands first
  for (const plan::Segment &segment : plan.segments) {
    const size_t layers = segment.repeatCount ? segment.repeated.size() : 0;
    for (const plan::Phase &p : segment.before)
      if (++next; &p == &phase)
        return std::to_string(next - 1);
    for (size_t i = 0; i < layers; ++i)
      if (&segment.repeated[i] == &phase)
        return fmt::format("{} + {} * layer", next + i, layers);
    next += layers * segment.repeatCount;
    for (const plan::Phase &p : segment.after)
      if (++next; &p == &phase)
        return std::to_string(next - 1);
  }
  return "";
}

std::vector<std::string> matrixTypes(const ir::Module &module, const plan::Plan &plan) {
  std::set<std::string> taken = {"", typeName(plan.model) + "Kv"};
  for (const ir::Operation *state : module.all(ir::Op::State))
    taken.insert(state->name);
  for (const ir::Operation *model : module.all(ir::Op::Model))
    for (const ir::Operation &op : model->region().ops)
      if (op.op == ir::Op::Weight)
        taken.insert(identifier(op.name));
  std::vector<std::string> types;
  for (const plan::Matrix &m : plan.matrices) {
    std::string base = typeName(m.name), type = base;
    for (int n = 1; isReserved(type) || llvm::isDigit(type[0]) || !taken.insert(type).second; ++n)
      type = base + "Matrix" + (n == 1 ? "" : std::to_string(n));
    types.push_back(type);
  }
  return types;
}

std::string placeExpr(const plan::Plan &plan, const plan::Place &place) {
  const plan::Buffer &buffer = plan.buffers[place.buffer];
  const std::string instance = place.instance == plan::Place::First   ? "0"
                               : place.instance == plan::Place::Layer ? "layer"
                               : place.instance == plan::Place::Next  ? "layer + 1"
                                                                      : std::to_string(buffer.instances - 1);
  return fmt::format("b.{}({})", identifier(buffer.name), instance);
}

} // namespace megalith::emit
