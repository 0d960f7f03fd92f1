#include "megalith/Emit/Control.h"
#include "ControlBody.h"
#include "StatementWriter.h"
#include "Tensor.h"
#include "device/Shape.h"
#include "megalith/IR/Calls.h"
#include "megalith/IR/Host.h"
#include "megalith/IR/Reducers.h"
#include "megalith/Plan/Plan.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

namespace megalith::emit {

using namespace ir;

namespace {

class ControlEmitter {
public:
  ControlEmitter(CodeWriter &w, const Module &module, const SourceFiles *files, const ControlOptions &options)
      : w(w), module(module), options(options), layout(module), writer(w, module, files, options.lineDirectives) {}

  void emit() {
    constants();
    states();
    request();
    numbers("Metric", "Counters of the run.", layout.metrics, layout.names.metrics);
    numbers("Gauge", "Values in the trace.", layout.gauges, layout.names.gauges);
    calls();
    w.line("using Control = ControlState<Config, Request>;");
    w.line("static_assert(sizeof(Control) <= Config::controlRoom, \"the plan reserves this much\");");
    w.line("using Activation = ActivationOf<Control>;");
    const auto &parts = tick();
    w.line();
    {
      const auto stages = w.space("stages");
      for (size_t i = 0; i < parts.size(); ++i)
        if (parts[i].op == Op::Part) {
          if (orderOf(parts[i].region()))
            order(parts[i], layout.names.parts[i]);
          part(parts[i], layout.names.parts[i], layout.bodies[i]);
        }
    }
    loopParts();
  }

private:
  const std::vector<Operation> &tick() const { return module.all(Op::Tick).front()->region().ops; }

  // --- declarations
  /// Whether control moves rows of a pool that has layers of both formats.
  static bool movesMixed(const PoolLayout &layoutOf) {
    return layoutOf.trees && layoutOf.op->get<attr::bf16_windows>();
  }
  /// What stands in front of poolConstants().
  void poolPlaces(const PoolLayout &layoutOf, const std::string &name) {
    if (movesMixed(layoutOf))
      emitKvPlaces(w, name, module, *layoutOf.model, "static __device__ const");
  }
  /// What control must know of a pool and of its model. `name`: of the struct.
  void poolConstants(const PoolLayout &layoutOf, int64_t number, const std::string &name) {
    const Operation *pool = layoutOf.op, *model = layoutOf.model;
    constant("model", number, "its number in LaunchParams::models");
    constant("vocab", model ? model->get<attr::vocab>() : 0);
    constant("pages", pool ? pool->get<attr::pages>() : 0);
    constant("pageTokens", pool ? pool->get<attr::page_tokens>() : 1);
    if (pool && pool->get<attr::index_pages>())
      w.line("static constexpr bool index = true; // requests find pages of others by their tokens");
    if (pool && pool->get<attr::format>() == WeightFormat::E4m3)
      w.line("static constexpr bool e4m3 = true; // keys and values");
    if (const int64_t spare = pool ? plan::sparePages(module, *pool) : 0)
      constant("sparePages", spare, "after these, for rows of pages that others may read");
    const int64_t window = model ? model->get<attr::kv_window>() : 0;
    if (window > 0)
      constant("kvWindow", window, "positions that a row sees; pages below are given back");
    constant("watermark", pool ? pool->get<attr::watermark>() : 100, "percent of the pages");
    const bool fails = !pool || pool->get<attr::on_full>() == OnFull::Fail;
    w.line("static constexpr bool failWhenFull = {};", fails);
    if (fails)
      constant("reserve", 0, "a pool that fails reserves nothing");
    else if (pool->has<attr::reserve>())
      constant("reserve", pool->get<attr::reserve>(),
               "tokens that admission reserves pages for, beyond those there are");
    else
      constant("reserve", -1, "admission reserves pages for the whole budget");
    constant("rowsBeyond", pool ? pool->get<attr::rows_beyond>() : 0,
             "that calls write after all of a request's tokens");
    constant("callTokens", layoutOf.callTokens, "that the calls of one stage feed");
    if (layoutOf.continues && !layoutOf.trees)
      w.line("static constexpr bool continues = true; // drafts of a run stand one after the other");
    if (!layoutOf.trees)
      return;
    w.line("static constexpr bool trees = true; // rows of a slot need not be a chain");
    constant("draftRows", layoutOf.draftRows, "of all calls in a run of a stage that feeds drafts");
    if (movesMixed(layoutOf))
      emitKvPlace(w, name);
    constant("layers", model->get<attr::kv_layers>());
    constant("kvHeads", model->get<attr::kv_heads>());
    constant("headDim", model->get<attr::head_dim>());
    if (const int64_t most = mostVocab(module); most != model->get<attr::vocab>())
      constant("dumpedWords", most, "of a line of LaunchParams::logits: another model has more tokens");
    if (earlierRows(module, pool->name)) {
      constant("paths", shape::pathsBegin(), "in the flagged words");
      constant("pathPlaces", plan::pathPlaces(module, pool->name), "of rows of earlier calls of a run, at most");
    }
  }

  void pools() {
    w.comment("The models' pools.");
    const auto space = w.space(ControlLayout::poolSpace(layout.pools.size()));
    int64_t begin = 0;
    for (auto [number, pool] : llvm::enumerate(layout.pools)) {
      const std::string &name = layout.names.pools.at(pool.op->name);
      poolPlaces(pool, name);
      const auto s = w.record("struct " + name);
      constant("slots", module.param("slots"));
      constant("rowsPerPass", module.param("rows_per_pass"));
      poolConstants(pool, number, name);
      w.line("static constexpr int callStride = {}, callBegin = {}; // in LaunchParams::callTokens", layout.callWords,
             begin);
      begin += pool.callWords();
    }
  }

  void constants() {
    if (layout.several())
      pools();
    else
      poolPlaces(layout.pools.front(), "Config");
    const auto s = w.record("struct Config");
    constant("slots", module.param("slots"));
    constant("rowsPerPass", module.param("rows_per_pass"));
    if (options.wide)
      w.line("static constexpr bool wide = true; // unread rows of a large pass may run as a wide one");
    if (options.late)
      w.line("static constexpr bool late = true; // and a pass behind it may begin with the last layer");
    if (const int64_t beside = ir::rowsBeside(module); beside < module.param("rows_per_pass"))
      constant("rowsBeside", beside, "of calls with chunk, while another request holds a slot");
    if (layout.several()) {
      std::string list;
      for (const PoolLayout &pool : layout.pools)
        list += (list.empty() ? "" : ", ") + pool.name;
      w.line("using Pools = PoolList<{}>; // by the models' numbers", list);
      emitModelFacts(w, module);
      if (layout.continuing() > layout.trees())
        w.line("static constexpr bool continues = true; // drafts of a run stand one after the other");
      if (layout.trees())
        w.line("static constexpr bool trees = true; // rows of a slot need not be a chain");
    } else {
      poolConstants(layout.pools.front(), 0, "Config");
    }
    if (plan::asksMore(module))
      w.line("static constexpr bool asksMore = true; // the models' code can do more than best tokens of chains");
    if (layout.queries) {
      constant("queries", layout.queries, "reducers of a call");
      constant("queryWords", layout.queryWords, "that they give for a row, in LaunchParams::reduced");
      if (layout.results > 1)
        constant("results", layout.results, "of a model, that calls read");
      if (layout.edits) {
        w.line("static constexpr bool edits = true; // settings of requests may change rows of logits");
        constant("textPath", layout.textPath, "tokens on the path of a row of a tree, or of a kept row, at most");
        constant("keptTexts", layout.keptTexts, "rows that requests keep");
      }
      if (layout.handWords > 0)
        constant("handWords", layout.handWords, "of a slot for what stages change of rows by hand");
      keptFields();
    }
    if (layout.scratchWords > 0)
      constant("scratchWords", layout.scratchWords, "that a warp keeps in a stage");
    if (const auto models = ir::modelsByNumber(module); !models.empty())
      constant("requestVocab", models.front()->get<attr::vocab>(), "tokens of the first model, which requests have");
    constant("states", layout.states.size());
    constant("faultState", layout.stateIndex(module.root.get<attr::fault>()), module.root.get<attr::fault>());
    for (auto [name, state] : {std::pair("cancelState", module.root.get<attr::cancel>()),
                               {"deadlineState", module.root.get<attr::deadline>()}})
      if (!state.empty())
        constant(name, layout.stateIndex(state), state);
    mask<attr::slot>("slotStates");
    mask<attr::terminal>("terminalStates");
    constant("sites", layout.sites.size(),
             layout.several() ? "where stages call models" : "where stages call the model");
    if (layout.loops())
      w.line("static constexpr bool loops = true; // some calls stand in loops of the tick");
    if (ir::loopsNest(module))
      w.line("static constexpr bool loopsNest = true; // some of these in others");
    constant("gauges", layout.gauges.size());
    constant("controlBegin", options.controlBegin, "byte of shared memory at which Control stands");
    constant("controlRoom", plan::controlRoom(module), "bytes of it");
  }

  /// The fields that keep rows of logits.
  void keptFields() {
    const std::vector<const Operation *> fields = ir::keptFields(module);
    if (fields.empty())
      return;
    const Operation *other = nullptr;
    constant("keptFields", fields.size(), "that keep rows of logits");
    const int64_t vocab = ir::keptVocab(module, other);
    constant("keptVocab", vocab ? vocab : ir::modelsByNumber(module)[0]->get<attr::vocab>(), "tokens of such a row");
    int64_t first = 0;
    std::string list;
    for (auto [i, op] : llvm::enumerate(fields)) {
      const auto field = llvm::find_if(layout.fields, [&](const RequestField &f) { return f.op == op; });
      if (i + 1 < fields.size())
        list += fmt::format("i == {} ? ", i);
      list += fmt::format("KeptField{{{}, {}, {}}}", field->offset, op->get<attr::capacity>(), first);
      list += i + 1 < fields.size() ? " : " : "";
      first += op->get<attr::capacity>() * module.param("slots");
    }
    w.line("__device__ __forceinline__ static KeptField kept(int{}) {{ return {}; }}", fields.size() > 1 ? " i" : "",
           list);
  }

  void constant(llvm::StringRef name, int64_t value, llvm::StringRef text = "") {
    w.line("static constexpr int {} = {};{}{}", name.str(), value, text.empty() ? "" : " // ", text.str());
  }

  /// One bit per state with that flag.
  template <typename Flag> void mask(llvm::StringRef name) {
    uint64_t bits = 0;
    std::string who;
    for (size_t i = 0; i < layout.states.size(); ++i)
      if (layout.states[i]->get<Flag>()) {
        bits |= uint64_t(1) << i;
        who += " " + layout.states[i]->name;
      }
    w.line("static constexpr unsigned long long {} = {:#x}; //{}", name.str(), bits, who);
  }

  void states() {
    assert(layout.states.size() <= limits::states && "a state is one bit of a mask");
    size_t nameWidth = 5, flagWidth = 5;
    std::vector<std::string> flags;
    for (const Operation *state : layout.states) {
      flags.push_back(llvm::join(state->flags(), " "));
      nameWidth = std::max(nameWidth, state->name.size());
      flagWidth = std::max(flagWidth, flags.back().size());
    }
    const auto row = [&](llvm::StringRef name, llvm::StringRef flag, llvm::StringRef next) {
      std::string text = fmt::format("//   {:{}}  {:{}}  {}", name.str(), nameWidth, flag.str(), flagWidth, next.str());
      w.line(llvm::StringRef(text).rtrim());
    };
    w.line();
    row("state", "flags", "next");
    for (size_t i = 0; i < layout.states.size(); ++i)
      row(layout.states[i]->name, flags[i], llvm::join(layout.states[i]->get<attr::next>(), " "));
    {
      const auto s = w.record("enum class State : int");
      for (size_t i = 0; i < layout.states.size(); ++i)
        w.line("{} = {},", layout.names.states.at(layout.states[i]->name), i);
    }
    w.line();
  }

  static std::string fieldType(const Type &type) {
    const std::string more = type.elem == Scalar::F32 ? ", float" : type.elem == Scalar::Bool ? ", bool" : "";
    if (type.kind == Type::Seq)
      return fmt::format("::megalith::device::Sequence<{}{}>", type.size, more); // a field may be called `Sequence`
    if (type.kind == Type::Table)
      return fmt::format("::megalith::device::Table<{}, {}{}>", type.size, type.inner, more);
    switch (type.elem) {
    case Scalar::F32:
      return "float";
    case Scalar::I64:
      return "long long";
    case Scalar::U32:
      return "unsigned";
    default:
      return "int";
    }
  }

  void request() {
    if (!layout.fields.empty()) {
      w.comment("What the pipeline keeps of a request.");
      const auto s = w.record("struct Fields");
      for (const RequestField &field : layout.fields) {
        const std::string &name = layout.names.fields.at(field.irName);
        w.line("{} {};{}", fieldType(field.type), name, name == field.irName ? "" : " // " + field.irName);
      }
    }
    if (!layout.inputs.empty()) {
      w.comment("What a request brings. Nothing changes it.");
      const auto s = w.record("struct Inputs");
      for (const RequestField &input : layout.inputs) {
        const std::string &name = layout.names.inputs.at(input.irName);
        w.line("{} {};{}", input.type.isList() ? "::megalith::abi::InputRange" : fieldType(input.type), name,
               name == input.irName ? "" : " // " + input.irName);
      }
    }
    {
      const std::string more = layout.indexBegin ? ", megalith::abi::IndexedRequest<{0}>" : "";
      const auto s = w.record(
          fmt::format(fmt::runtime("struct Request : megalith::abi::RequestOf<{0}>" + more), layout.pools.size()));
      if (!layout.fields.empty()) // an empty member has a size
        w.line("Fields fields;");
      if (!layout.inputs.empty())
        w.line("Inputs inputs;");
      std::string test;
      for (const RequestField &field : layout.fields)
        if (field.type.isList())
          test += (test.empty() ? "" : " && ") + ("fields." + layout.names.fields.at(field.irName)) + ".inRange()";
      w.line("__device__ bool fieldsInRange() const {{ return {}; }}", test.empty() ? "true" : test);
    }
    w.line("static_assert(sizeof(Request) == {}, \"the manifest gives the host this layout\");", layout.requestBytes);
    w.line();
  }

  void numbers(llvm::StringRef name, llvm::StringRef text, const std::vector<const Operation *> &ops,
               const std::map<std::string, std::string> &names) {
    if (ops.empty())
      return;
    w.comment(text);
    std::string list;
    for (const Operation *op : ops)
      list += (list.empty() ? " " : ", ") + names.at(op->name);
    w.line("enum class {} : int {{{} }};", name.str(), list);
    w.line();
  }

  void calls() {
    if (layout.sites.empty())
      return;
    const auto space = w.space("calls");
    for (const CallSite &site : layout.sites) {
      if (site.atLoop) {
        w.comment(
            fmt::format("Where a request in stage {} stands in front of a round, or after the last one.", site.stage));
        const auto s = w.record("struct " + layout.names.sites.at(site.site));
        w.line("static constexpr int site = {};", site.site);
        continue;
      }
      w.comment(fmt::format("Stage {} calls {}.", site.stage, layout.several() ? site.model : "the model"));
      const auto s = w.record("struct " + layout.names.sites.at(site.site));
      if (layout.several())
        w.line("using Pool = {};", layout.pool(site.model).name.empty() ? "" : "::" + layout.pool(site.model).name);
      w.line("static constexpr int site = {}, chunk = {};{}", site.site, site.chunk,
             site.chunk ? "" : " // indivisible");
      if (layout.loops())
        w.line("static constexpr int ownPass = {}; // {}", site.ownPass ? site.site : -1,
               site.ownPass ? "in a loop each call has its own" : "the model's");
      w.line("static constexpr bool draft = {}, wantsLogits = {};", site.draft ? "true" : "false",
             site.wantsLogits ? "true" : "false");
      if (site.lastRow)
        w.line("static constexpr bool lastRow = true; // what is asked of it is asked of its last row alone");
      for (const CallQuery &query : site.queries) {
        // Of another result than the logits, the best token is a draw at temperature 0.
        const Reducer reducer = ir::reducerOf(*query.op).id;
        const bool draws = reducer == Reducer::ArgMax && !query.isBest();
        const auto of = w.record("struct " + query.name);
        w.line("static constexpr ReducerKind reducer = ReducerKind::{};",
               draws ? "Sample" : ir::reducerOf(*query.op).enumName.str());
        w.line("static constexpr int index = {}, place = {}, count = {}, part = {};", query.index, query.place,
               query.words, static_cast<int>(query.op->get<attr::part>()));
        if (query.result > 0)
          w.line("static constexpr int result = {}; // {}", query.result, query.op->get<attr::result>());
        if (const int64_t fields = fieldsOf(*query.op))
          w.line("static constexpr int fields = {}; // that keep rows: the reducer's part in them", fields);
        if (!query.hand.empty())
          w.line("using Hand = HandPlaces<{}>; // what the stage gives by hand", query.hand);
        if (query.op->has<attr::edited>())
          w.line("static constexpr bool edited = true; // settings of requests may change its rows");
        w.line("using Value = {};", ir::reducedType(*query.op, 1).elem == Scalar::F32 ? "float" : "int");
      }
    }
  }

  /// CallQuery::fields.
  int64_t fieldsOf(const Operation &reduce) const {
    const std::vector<const Operation *> fields = ir::keptFields(module);
    const auto number = [&](const std::string &name) -> int64_t {
      const auto it = llvm::find_if(fields, [&](const Operation *field) { return field->name == name; });
      return it == fields.end() ? 0 : it - fields.begin() + 1;
    };
    return number(reduce.get<attr::kept>()) | number(reduce.get<attr::minus>()) << 8 |
           number(reduce.get<attr::keep>()) << 16;
  }

  // --- parts
  static std::string orderName(const std::string &part) { return typeName(part) + "Order"; }

  /// The order of those that wait for a slot.
  void order(const Operation &op, const std::string &name) {
    const std::vector<Statement> keys = orderStatements(module, layout, op.region());
    const Operation &yield = orderOf(op.region())->region().ops.back();
    w.line();
    w.comment("Which request in " + op.get<attr::state>() + " comes first: that with the least keys.");
    const auto s = w.record("struct " + orderName(name));
    w.line("static constexpr int keys = {};", yield.operands.size());
    const auto scope = w.scope("static __device__ void of(Activation &t, u32 *key)");
    if (usesFields(keys))
      w.line("const Fields &r = t.r.fields;");
    writer.function(keys);
  }

  void part(const Operation &op, const std::string &name, const std::vector<Statement> &body) {
    std::string text = "Stage " + op.get<attr::stage>() + " of " + op.get<attr::state>();
    text += writer.place(op.loc);
    if (op.has<attr::after_site>() || op.has<attr::before_site>())
      text += op.has<attr::after_site>() ? op.has<attr::before_site>() ? ", between two calls" : ", after its call"
                                         : ", up to its call";
    w.line();
    w.comment(text + ".");
    const auto scope = w.scope("static __device__ void " + name + "(Activation &t)", name);
    if (usesFields(body))
      w.line("Fields &r = t.r.fields;");
    writer.function(body);
  }

  static bool usesFields(const std::vector<Statement> &body) {
    return llvm::any_of(
        body, [](const Statement &s) { return s.code.usesFields || usesFields(s.body) || usesFields(s.otherwise); });
  }

  // --- the loop's parts
  static bool runsSlots(const Operation &op) { return op.op == Op::Part && op.get<attr::kind>() != PartKind::Admit; }

  void loopParts() {
    if (layout.several())
      return ticksOfSeveral();
    const auto &parts = tick();
    const auto pass = llvm::find_if(parts, [](const Operation &op) { return op.op == Op::Pass; });
    const size_t split = pass - parts.begin();
    w.line();
    w.comment("Ticks up to the model's next pass, or to the end of the loop. After a pass: first the rest of its "
              "tick.");
    const auto scope = w.scope("__device__ __noinline__ void controlTicks(bool afterPass)", "controlTicks");
    w.line("Control &c = controlOfCta<Control>();");
    piece();
    const auto loop = w.scope("for (;; afterPass = true)", "tick");
    {
      const auto rest = w.scope("if (afterPass)");
      range(split, parts.size(), split < parts.size());
      w.line("endTick(c);");
    }
    w.line("beginTick(c);");
    w.line("if (c.done)");
    w.line("  return;");
    range(0, split, false);
    if (split < parts.size())
      w.line("formPass(c);");
    w.line("if (c.numRows > 0)");
    w.line("  return;");
    w.comment("A tick without rows: no other CTA hears of it.");
  }

  /// A pass of more rows than the models' code takes at once runs in pieces.
  void piece() {
    if (module.param("rows_per_pass") <= shape::kMaxRows)
      return;
    w.line("if (afterPass && nextPiece(c)) // of the same pass");
    w.line("  return;");
  }

  /// The same with several models: each pass of the list ends one call of the function, and the next call goes on
  /// after it.
  void ticksOfSeveral() {
    const auto &parts = tick();
    w.line();
    w.comment("Ticks up to the next pass of a model, or to the end of the loop. After a pass: first the rest of its "
              "tick.");
    const auto scope = w.scope("__device__ __noinline__ void controlTicks(bool afterPass)", "controlTicks");
    w.line("Control &c = controlOfCta<Control>();");
    piece();
    w.line("if (afterPass)");
    w.line("  countPass(c);");
    const bool loops = layout.loops();
    const auto loop =
        w.scope(fmt::format("for (int after = afterPass ? c.after : 0;;{})", loops ? "" : " after = 0"), "tick");
    const auto list = w.scope("switch (after)");
    size_t head = 0; // of a loop: its case
    for (size_t i = 0, passes = 0; i < parts.size() || passes == 0;) {
      const bool after = i < parts.size() && parts[i].op == Op::Pass;
      const auto piece = w.scope(fmt::format("case {}:", passes++));
      if (passes == 1) {
        w.line("beginTick(c);");
        w.line("if (c.done)");
        w.line("  return;");
      } else if (after) {
        w.comment(fmt::format("After the pass of {}.", parts[i].name));
      }
      const int64_t number = i < parts.size() ? parts[i].get<attr::loop>() : -1;
      if (number >= 0 && parts[i].op == Op::Part) {
        w.comment("A round of the loop.");
        head = passes - 1;
      }
      size_t end = i + after;
      while (end < parts.size() && parts[end].op != Op::Pass && parts[end].get<attr::loop>() == number)
        ++end;
      range(i, end, after);
      i = end;
      if (i < parts.size() && parts[i].op == Op::Pass) {
        // In a loop the pass is that of the call in front of it.
        const int64_t of = parts[i].has<attr::loop>() ? parts[i - 1].get<attr::before_site>() : INT64_C(-1);
        w.line("if (formPass<{}>(c, {}{}))", layout.pool(parts[i].name).name, passes,
               of < 0 ? "" : fmt::format(", {}", of));
        w.line("  return;");
      } else if (number >= 0) {
        w.comment("Until a round serves nobody.");
        const auto again = w.scope("if (servedRound(c))");
        w.line("after = {};", head);
        w.line("break;");
      }
      if (i == parts.size()) {
        w.line("endTick(c);");
        if (loops)
          w.line("after = 0;");
      }
    }
  }

  /// Parts [first, last) of the list; neighbours that run on slots share one loop.
  void range(size_t first, size_t last, bool complete) {
    const auto &parts = tick();
    size_t i = first;
    std::string ofPool;
    if (i < last && parts[i].op == Op::Pass)
      ofPool = layout.poolArgument(parts[i++].name);
    if (complete && (i == last || !runsSlots(parts[i])))
      w.line("everySlot(c, [&](Activation &t) {{ completeCall{}(t); }});", ofPool);
    while (i < last) {
      if (!runsSlots(parts[i])) {
        const std::string &name = layout.names.parts[i];
        w.line("admission{}(c, {}, [&](Activation &t) {{ stages::{}(t); }}{});",
               orderOf(parts[i].region()) ? "<stages::" + orderName(name) + ">" : "",
               layout.stateName(parts[i].get<attr::state>()), name,
               parts[i].has<attr::limit>() ? fmt::format(", {}", parts[i].get<attr::limit>()) : "");
        complete = false;
        ++i;
        continue;
      }
      const auto scope = w.lambda("everySlot(c, [&](Activation &t)");
      if (complete)
        w.line("completeCall{}(t);", ofPool);
      complete = false;
      for (; i < last && runsSlots(parts[i]); ++i) {
        if (parts[i].has<attr::after_site>())
          w.line("if (t.resumes<calls::{}>())", layout.names.sites.at(parts[i].get<attr::after_site>()));
        else
          w.line("if (t.in({}))", layout.stateName(parts[i].get<attr::state>()));
        w.line("  stages::{}(t);", layout.names.parts[i]);
      }
    }
  }

  CodeWriter &w;
  const Module &module;
  const ControlOptions &options;
  const ControlLayout layout;
  StatementWriter writer;
};

} // namespace

void emitControl(CodeWriter &w, const Module &module, const SourceFiles *files, const ControlOptions &options) {
  ControlEmitter(w, module, files, options).emit();
}

} // namespace megalith::emit
