#include "ExprLexer.h"
#include "ExprParser.h"
#include "Reader.h"
#include "megalith/Syntax/Parse.h"

namespace megalith::ast {

namespace {
class PipelineReader : Reader {
public:
  PipelineReader(Diagnostics &diags, uint32_t fileIndex) : Reader(diags) { file.file = fileIndex; }

  PipelineFile read(const YamlNode &root) {
    const std::string what = "the pipeline file";
    std::vector<KeyValue> sections = entries(root, what);
    if (root.kind != YamlNode::Map)
      return std::move(file);
    refusePlanned(
        sections, what,
        {{"queues", "states that requests wait in"}, {"extern", "inputs of the request, or `buffers` of a call"}});
    file.ofBuffers = ofBuffers = find(sections, "buffers") || find(sections, "dims");
    if (ofBuffers) {
      checkOfBuffers(sections);
      checkKeys(sections, what, {"pipeline", "params", "dims", "buffers", "stages"});
      requireKeys(sections, what, root.loc, {"pipeline", "buffers", "stages"});
    } else {
      checkKeys(sections, what, {"pipeline", "models", "params", "request", "states", "kv", "policies", "stages"});
      requireKeys(sections, what, root.loc, {"pipeline", "states", "stages"});
    }
    for (const KeyValue &section : sections)
      readSection(section);
    return std::move(file);
  }

private:
  static constexpr const char *gotoForm = "`goto` is a state or `STATE if condition else OTHER`";
  PipelineFile file;

  /// Buffers are of a call, which has no request.
  void checkOfBuffers(std::vector<KeyValue> &sections) {
    const auto first =
        llvm::find_if(sections, [](const KeyValue &s) { return s.key.text == "buffers" || s.key.text == "dims"; });
    const KeyValue buffers = *first;
    llvm::erase_if(sections, [&](const KeyValue &s) {
      const std::string &key = s.key.text;
      if (key != "models" && key != "request" && key != "states" && key != "kv" && key != "policies")
        return false;
      diags.report(Diag::BesideBuffers, s.key.loc, key, buffers.key.text);
      diags.note(buffers.key.loc, "a pipeline with buffers is called by another program: it has no model, request or "
                                  "state");
      return true;
    });
  }

  void readSection(const KeyValue &section) {
    const std::string &key = section.key.text;
    if (key == "pipeline") {
      file.name = readName(*section.value, "`pipeline`", "a name of letters, digits and `_`");
      return;
    }
    void (PipelineReader::*readEntry)(const KeyValue &) =
        key == "models"     ? &PipelineReader::readModel
        : key == "params"   ? &PipelineReader::readParam
        : key == "request"  ? &PipelineReader::readRequestField
        : key == "states"   ? &PipelineReader::readState
        : key == "kv"       ? &PipelineReader::readPool
        : key == "policies" ? &PipelineReader::readPolicy
        : key == "dims"     ? &PipelineReader::readDim
        : key == "buffers"  ? &PipelineReader::readBuffer
        : key == "stages"   ? ofBuffers ? &PipelineReader::readItems : &PipelineReader::readStage
                            : nullptr;
    if (!readEntry)
      return;
    if (key == "states")
      file.statesLoc = section.key.loc;
    for (const KeyValue &entry : entries(*section.value, ticks(key)))
      (this->*readEntry)(entry);
  }

  void readModel(const KeyValue &entry) {
    const std::string what = "model " + ticks(entry.key.text);
    checkName(entry.key, "a model");
    ModelRef model;
    model.name = entry.key;
    if (entry.value->kind == YamlNode::Null && entry.value->text.empty()) { // `target:`
      file.models.push_back(std::move(model));
      return;
    }
    std::vector<KeyValue> keys = entries(*entry.value, what);
    checkKeys(keys, what, {"graph"});
    if (const YamlNode *graph = find(keys, "graph"))
      model.graph = readWord(*graph, "`graph` of " + what, "the path of a model file");
    file.models.push_back(std::move(model));
  }

  void readParam(const KeyValue &entry) {
    checkName(entry.key, "a param");
    const std::string what = "param " + ticks(entry.key.text);
    const char *hint = "a param is one number, `true` or `false`, or a list of them";
    if (entry.value->kind != YamlNode::Sequence) {
      file.params.push_back({entry.key, readExpr(*entry.value, what, hint)});
      return;
    }
    auto list = std::make_unique<Expr>();
    list->kind = Expr::List;
    list->loc = entry.value->loc;
    for (const auto &item : entry.value->items)
      if (ExprPtr element = readExpr(*item, "an element of " + what, hint))
        list->args.push_back(std::move(element));
    file.params.push_back({entry.key, std::move(list)});
  }

  void readRequestField(const KeyValue &entry) {
    file.fields.push_back(readField(entry, "field " + ticks(entry.key.text)));
  }

  void readState(const KeyValue &entry) {
    for (auto [key, into] : {std::pair("fault", &file.fault), {"cancel", &file.cancel}, {"deadline", &file.deadline}})
      if (entry.key.text == key) {
        Name state = readName(*entry.value, ticks(key), "the name of a state");
        if (state.loc)
          *into = std::move(state);
        return;
      }
    const std::string what = "state " + ticks(entry.key.text);
    checkName(entry.key, "a state");
    StateDecl state;
    state.name = entry.key;
    std::vector<KeyValue> keys = entries(*entry.value, what);
    checkKeys(keys, what, {"initial", "terminal", "parked", "slot", "preemptible", "next"});
    auto flag = [&](const char *key, bool &value) {
      if (const YamlNode *node = find(keys, key))
        value = readBool(*node, ticks(key) + " of " + what);
    };
    flag("initial", state.initial);
    flag("terminal", state.terminal);
    flag("parked", state.parked);
    flag("slot", state.slot);
    flag("preemptible", state.preemptible);
    if (const YamlNode *next = find(keys, "next"))
      state.next = readNames(*next, "`next` of " + what, "the name of a state");
    file.states.push_back(std::move(state));
  }

  void readPool(const KeyValue &entry) {
    const std::string what = "pool `kv." + entry.key.text + "`";
    checkName(entry.key, "a pool");
    PoolDecl pool;
    pool.name = entry.key;
    std::vector<KeyValue> keys = entries(*entry.value, what);
    refusePlanned(
        keys, what,
        {{"holes", "`kv.M.keep: n`, which keeps leading tokens"},
         {"exact", "KV of the request's own tokens: what other rows have written is kept by no `kv.M.keep`"}});
    checkKeys(keys, what, {"pages", "page_tokens", "watermark", "on_full", "reserve", "index", "dtype", "windows"});
    if (entry.value->kind == YamlNode::Map)
      requireKeys(keys, what, entry.key.loc, {"pages", "page_tokens"});
    auto expression = [&](const char *key, ExprPtr &value, const char *kind = "it is one number") {
      if (const YamlNode *node = find(keys, key))
        value = readExpr(*node, ticks(key) + " of " + what, kind);
    };
    expression("pages", pool.pages);
    expression("page_tokens", pool.pageTokens);
    expression("watermark", pool.watermark);
    expression("reserve", pool.reserve);
    expression("index", pool.index, "it is `true`, `false` or `auto`");
    if (const YamlNode *onFull = find(keys, "on_full"))
      pool.onFull = readName(*onFull, "`on_full` of " + what, "`fail`, `wait` or `preempt`");
    if (const YamlNode *dtype = find(keys, "dtype"))
      pool.dtype = readName(*dtype, "`dtype` of " + what, "`bf16` or `fp8`");
    if (const YamlNode *windows = find(keys, "windows"))
      pool.windows = readName(*windows, "`windows` of " + what, "`bf16`");
    file.pools.push_back(std::move(pool));
  }

  void readPolicy(const KeyValue &entry) {
    const std::string what = "policy " + ticks(entry.key.text);
    checkName(entry.key, "a policy");
    PolicyDecl policy;
    policy.name = entry.key;
    std::vector<KeyValue> keys = entries(*entry.value, what);
    const KeyValue *observe = nullptr;
    std::vector<KeyValue> others;
    for (const KeyValue &key : keys) {
      llvm::StringRef word = llvm::StringRef(key.key.text).take_until([](char c) { return c == '(' || c == ' '; });
      if (word != "observe") {
        others.push_back(key);
      } else if (observe) {
        diags.report(Diag::DuplicateKey, key.key.loc, "observe", what);
        diags.note(observe->key.loc, "first given here");
      } else {
        observe = &key;
      }
    }
    checkKeys(others, what, {"per", "state", "observe(...)", "outputs"});
    if (entry.value->kind == YamlNode::Map)
      requireKeys(others, what, entry.key.loc, {"outputs"});
    if (const YamlNode *per = find(others, "per"))
      policy.per = readName(*per, "`per` of " + what, "`request`, `pool` or `pipeline`");
    if (const YamlNode *state = find(others, "state"))
      for (const KeyValue &field : entries(*state, "`state` of " + what))
        policy.state.push_back(readField(field, "field " + ticks(field.key.text)));
    if (observe) {
      Name callee;
      ExprParser(diags, *observe->keyNode).parseSignature(callee, policy.observeArgs);
      policy.observe = readBody(*observe->value, "`observe` of " + what, /*inGraph=*/false);
    }
    if (const YamlNode *outputs = find(others, "outputs"))
      for (const KeyValue &output : entries(*outputs, "`outputs` of " + what)) {
        checkName(output.key, "an output");
        policy.outputs.push_back({output.key, readExpr(*output.value, "output " + ticks(output.key.text),
                                                       "an output is one number, bool or token")});
      }
    file.policies.push_back(std::move(policy));
  }

  void readStage(const KeyValue &entry) {
    const std::string what = "stage " + ticks(entry.key.text);
    checkName(entry.key, "a stage");
    StageDecl stage;
    stage.name = entry.key;
    std::vector<KeyValue> keys = entries(*entry.value, what);
    refusePlanned(keys, what, {{"over", "a stage without it, which sees one request"}});
    checkKeys(keys, what, {"on", "order", "limit", "do", "goto", "progress"});
    if (entry.value->kind == YamlNode::Map)
      requireKeys(keys, what, entry.key.loc, {"on", "do", "goto"});
    if (const YamlNode *on = find(keys, "on"))
      stage.on = readNames(*on, "`on` of " + what, "the name of a state");
    if (const YamlNode *order = find(keys, "order"))
      readOrder(*order, what, stage);
    if (const YamlNode *limit = find(keys, "limit"))
      stage.limit = readExpr(*limit, "`limit` of " + what, "it is one number");
    if (const YamlNode *body = find(keys, "do"))
      stage.body = readBody(*body, "`do` of " + what, /*inGraph=*/false);
    if (const YamlNode *go = find(keys, "goto")) {
      stage.go = readExpr(*go, "`goto` of " + what, gotoForm);
      if (stage.go)
        checkGoto(*stage.go);
    }
    if (const YamlNode *progress = find(keys, "progress")) {
      Name field = readName(*progress, "`progress` of " + what, "the name of a field",
                            /*dotted=*/true);
      if (field.loc)
        stage.progress = std::move(field);
    }
    file.stages.push_back(std::move(stage));
  }

  void readDim(const KeyValue &entry) {
    const std::string what = "dim " + ticks(entry.key.text);
    checkName(entry.key, "a dim");
    ExprPtr range = readExpr(*entry.value, what, "a dim is a range such as `0..65536`");
    if (range && range->kind != Expr::Range)
      diags.report(Diag::ExprSyntax, range->loc, "a range such as `0..65536`", "another expression");
    else
      file.dims.push_back({entry.key, std::move(range)});
  }

  void readBuffer(const KeyValue &entry) {
    const std::string what = "buffer " + ticks(entry.key.text);
    checkName(entry.key, "a buffer");
    BufferDecl buffer;
    buffer.name = entry.key;
    std::vector<KeyValue> keys = entries(*entry.value, what);
    checkKeys(keys, what, {"shape", "dtype"});
    if (entry.value->kind == YamlNode::Map)
      requireKeys(keys, what, entry.key.loc, {"shape", "dtype"});
    if (const YamlNode *shape = find(keys, "shape"))
      readShape(*shape, what, buffer);
    if (const YamlNode *dtype = find(keys, "dtype"))
      buffer.dtype = readName(*dtype, "`dtype` of " + what, "`i32`, `i64`, `f32`, `bool`, `f16` or `bf16`");
    file.buffers.push_back(std::move(buffer));
  }

  /// A list of YAML, or one of our own in a word: `'[b, g + 1]'`.
  void readShape(const YamlNode &shape, const std::string &what, BufferDecl &buffer) {
    buffer.shapeLoc = shape.loc;
    if (shape.kind == YamlNode::Sequence) {
      for (const auto &item : shape.items)
        if (ExprPtr size = readExpr(*item, "a size of `shape` of " + what))
          buffer.shape.push_back(std::move(size));
      return;
    }
    ExprPtr list = readExpr(shape, "`shape` of " + what);
    if (list && list->kind != Expr::List)
      diags.report(Diag::ExprSyntax, list->loc, "a list of sizes such as `[b, g]`", "another expression");
    else if (list)
      buffer.shape = std::move(list->args);
  }

  /// A stage over buffers.
  void readItems(const KeyValue &entry) {
    const std::string what = "stage " + ticks(entry.key.text);
    checkName(entry.key, "a stage");
    StageDecl stage;
    stage.name = entry.key;
    std::vector<KeyValue> keys = entries(*entry.value, what);
    checkKeys(keys, what, {"over", "mapping", "do"});
    if (entry.value->kind == YamlNode::Map)
      requireKeys(keys, what, entry.key.loc, {"do"});
    if (const YamlNode *over = find(keys, "over"))
      stage.over = readBinder(*over, "`over` of " + what, "the number of an item", stage.items);
    if (const YamlNode *mapping = find(keys, "mapping")) {
      Name word = readName(*mapping, "`mapping` of " + what, "`serial`, `lane`, `warp` or `auto`");
      if (word.loc)
        stage.mapping = std::move(word);
    }
    if (const YamlNode *body = find(keys, "do"))
      stage.body = readBody(*body, "`do` of " + what, /*inGraph=*/false);
    file.stages.push_back(std::move(stage));
  }

  void readOrder(const YamlNode &order, const std::string &what, StageDecl &stage) {
    const char *hint = "`order` is a list of numbers: the request with the least first one comes first";
    stage.orderLoc = order.loc;
    if (!expectKind(order, YamlNode::Sequence, "`order` of " + what, "a list of keys"))
      return;
    for (const auto &item : order.items)
      if (ExprPtr key = readExpr(*item, "a key of `order` of " + what, hint))
        stage.order.push_back(std::move(key));
  }

  /// A `goto` is a state name or a choice between two of them.
  void checkGoto(const Expr &expr) {
    if (expr.kind == Expr::Conditional) {
      checkGoto(*expr.args[0]);
      checkGoto(*expr.args[2]);
    } else if (expr.kind != Expr::Path || !isIdentifier(expr.text)) {
      diags.report(Diag::ExprSyntax, expr.loc, "the name of a state",
                   expr.kind == Expr::Path ? ticks(expr.text) : "another expression");
      diags.note(gotoForm);
    }
  }
};
} // namespace

std::optional<PipelineFile> parsePipeline(Diagnostics &diags, uint32_t file) {
  unsigned errorsBefore = diags.errors();
  std::unique_ptr<YamlNode> root = readYaml(diags, file, "a pipeline file");
  if (!root)
    return std::nullopt;
  PipelineFile pipeline = PipelineReader(diags, file).read(*root);
  if (diags.errors() != errorsBefore)
    return std::nullopt;
  return pipeline;
}

} // namespace megalith::ast
