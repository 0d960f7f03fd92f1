#include "RandomPipeline.h"
#include "Expressions.h"
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace megalith::random_pipelines {
namespace {

class Generator : Expressions {
public:
  Generator(uint64_t seed, bool wordy)
      : Expressions(seed, wordy), ofAdmission(seed + 17), ofCalls(seed + 23), ofParams(seed + 29) {}

  RandomPipeline make() {
    RandomPipeline out;
    chooseSizes();
    makeParams();
    makeFields();
    if (chance(30))
      makeInputs();
    for (uint64_t i = below(3); i > 0; --i)
      makePolicy();
    makeGraph();
    out.positions = pages * pageTokens;
    out.samples = samples;
    out.yaml = text();
    out.broken = chance(25);
    for (uint64_t i = out.broken ? 1 + below(3) : 0; i > 0; --i)
      out.yaml = changed(out.yaml);
    out.requests = requests();
    return out;
  }

private:
  struct Stage {
    std::string name, state, other; ///< other: a second state with the same stage
    std::vector<std::string> statements;
    std::vector<std::string> next; ///< in this order, with conditions but the last
    std::vector<std::string> conditions;
    bool slot = true, appends = false;
    std::string progress;
  };

  //===--- declarations ---------------------------------------------------===//

  void chooseSizes() {
    slots = chance(85) ? range(1, 8) : oneOf<int64_t>({33, 64, 65, 200, 1024});
    rows = chance(75) ? range(1, 16) : oneOf<int64_t>({17, 24, 300, 64, 2048, 128});
    pageTokens = chance(80) ? range(1, 8) : oneOf<int64_t>({16, 100, 128, 1024, 33554432});
    pages = chance(70) ? range(20, 80) : range(1, 20);
    if (chance(5))
      pages = oneOf<int64_t>({512, 4096, 65536});
    pages = std::min(pages, (int64_t(1) << 30) / pageTokens);
  }

  void makeParams() {
    for (uint64_t i = below(6); i > 0; --i) {
      Variable p{fresh(), oneOf({Kind::I32, Kind::I32, Kind::F32, Kind::Bool})};
      p.size = range(1, 9); // of an i32 that is used where a size stands
      const bool small = p.kind == Kind::I32 && chance(60);
      p.isSize = small;
      std::string text = small ? std::to_string(p.size) : literal(p.kind);
      if (p.kind == Kind::I32 && !small && chance(30))
        text = oneOf<std::string>({"target.config.hidden", "target.config.vocab / 7", "min(3, 5) - 4", "-(2 + 3)"});
      params.push_back(fmt::format("{}: {}", p.name, quoted(text)));
      constants.push_back(p);
    }
    if (chance(40))
      params.push_back(fmt::format("slots: {}", slots));
    else
      slots = 8;
    if (chance(80))
      params.push_back(fmt::format("rows_per_pass: {}", rows));
    else
      rows = 64;
    if (ofParams() % 5 < 2)
      params.push_back(fmt::format("rows_beside: {}", 1 + ofParams() % rows));
  }

  void makeFields() {
    for (uint64_t i = below(7); i > 0; --i) {
      Variable f{fresh(), oneOf({Kind::I32, Kind::F32, Kind::Bool, Kind::Token, Kind::Seq, Kind::Seq})};
      if (chance(25)) {
        f.kind = oneOf({Kind::Numbers, Kind::Floats, Kind::Flags, Kind::Table});
        f.size = range(1, 9);
        f.rows = f.kind == Kind::Table ? range(1, 5) : 0;
        const char *item = f.kind == Kind::Numbers  ? "i32"
                           : f.kind == Kind::Floats ? "f32"
                           : f.kind == Kind::Flags  ? "bool"
                                                    : "token";
        fieldLines.push_back(f.rows ? fmt::format("{}: '{}[{}, {}]'", f.name, item, f.rows, f.size)
                                    : fmt::format("{}: {}[{}]", f.name, item, sizeText(f.size)));
      } else if (f.kind == Kind::Seq) {
        f.size = chance(80) ? range(1, 12) : oneOf<int64_t>({100, 250, 512, 1024});
        fieldLines.push_back(fmt::format("{}: token[{}]", f.name, sizeText(f.size)));
      } else {
        fieldLines.push_back(
            fmt::format("{}: {}{}", f.name, nameOf(f.kind), chance(60) ? " = " + literal(f.kind) : ""));
      }
      fields.push_back(f);
    }
  }

  /// What the requests bring; see bringInputs.
  void makeInputs() {
    for (uint64_t i = 1 + below(4); i > 0; --i) {
      Variable v{fresh(), oneOf({Kind::I32, Kind::F32, Kind::Bool, Kind::Token, Kind::Seq, Kind::Seq})};
      std::string type = nameOf(v.kind), otherwise;
      if (v.kind == Kind::Seq) {
        v.size = chance(60) ? range(1, 12) : oneOf<int64_t>({100, 1024, 1025, 5000, 65536});
        type = fmt::format("token[{}]", sizeText(v.size));
        otherwise = v.size > 1 && chance(50) ? fmt::format("[{}, 5]", range(0, kVocab - 1)) : "[]";
      } else if (v.kind == Kind::I32 && chance(60)) {
        const int64_t least = range(-5, 5);
        type = fmt::format("i32 in {}..{}", least, least + range(1, 20));
        otherwise = std::to_string(least);
      } else {
        otherwise = literal(v.kind);
      }
      fieldLines.push_back(fmt::format("{}: {} = input{}", v.name, type, chance(50) ? "(" + otherwise + ")" : ""));
      inputs.push_back(v);
    }
  }

  void makePolicy() {
    Policy p;
    p.name = fresh();
    std::string state, outputs;
    std::vector<std::string> statements;
    Scope scope;
    scope.policy = true;
    for (uint64_t i = 1 + below(2); i > 0; --i) {
      Variable s{fresh(), oneOf({Kind::F32, Kind::I32, Kind::Bool})};
      state += fmt::format("{}{}: {} = {}", state.empty() ? "" : ", ", s.name, nameOf(s.kind), literal(s.kind));
      scope.variables.push_back(s);
      p.members.push_back({p.name + "." + s.name, s.kind});
    }
    const std::vector<Variable> states = scope.variables;
    std::vector<std::string> arguments;
    Scope inside = scope;
    for (uint64_t i = 1 + below(2); i > 0; --i) {
      arguments.push_back(fresh());
      inside.variables.push_back({arguments.back(), Kind::I32});
    }
    p.arguments = arguments.size();
    for (uint64_t i = 1 + below(2); i > 0; --i) {
      const Variable &s = states[below(states.size())];
      statements.push_back(fmt::format("- {}: {}", s.name, quoted(value(s.kind, inside, 2))));
      if (chance(30))
        statements.back() = fmt::format("- if: {}\n  do:\n    {}", quoted(boolean(inside, 1)), statements.back());
    }
    for (uint64_t i = 1 + below(2); i > 0; --i) {
      Variable o{fresh(), oneOf({Kind::F32, Kind::I32, Kind::Bool})};
      outputs += fmt::format("      {}: {}\n", o.name, quoted(value(o.kind, scope, 2)));
      scope.variables.push_back(o);
      p.members.push_back({p.name + "." + o.name, o.kind});
    }
    policyText += fmt::format("  {}:\n    state: {{{}}}\n    observe({}):\n{}    outputs:\n{}", p.name, state,
                              fmt::join(arguments, ", "), indented(statements, 6), outputs);
    policies.push_back(p);
  }

  //===--- states and stages ----------------------------------------------===//

  Scope scopeOf(const Stage &s) const {
    Scope scope;
    scope.slot = s.slot;
    scope.variables = fields;
    scope.variables.insert(scope.variables.end(), inputs.begin(), inputs.end());
    return scope;
  }

  Stage &newStage(const std::string &state, bool slot = true) {
    Stage s;
    s.state = state;
    s.name = fresh();
    s.slot = slot;
    stages.push_back(s);
    return stages.back();
  }

  std::string stateName() { return wordy ? fresh() : fmt::format("S{}", stateCount++); }

  void makeGraph() {
    const std::string start = stateName(), prefill = stateName();
    const std::string park = chance(30) ? stateName() : "";
    terminals.push_back("DONE");
    if (chance(20))
      terminals.push_back("STOPPED");
    std::vector<std::string> entries; // of what follows the prompt
    for (uint64_t i = 1 + below(4); i > 0; --i)
      entries.push_back(stateName());
    stages.reserve(32);

    admission(newStage(start, false), park.empty() || chance(50) ? prefill : park, park);
    if (!park.empty())
      admission(newStage(park, false), prefill, "");
    Stage &feed = newStage(prefill);
    some(feed, 2);
    feed.statements.push_back(fmt::format("- target(tokens[kv.target.len:-1], chunk={}, keep=none)",
                                          chance(50) ? sizeText(range(1, rows)) : std::to_string(range(1, 300))));
    some(feed, 2);
    feed.conditions = {"kv.target.lag == 1"};
    feed.next = {entries[0], prefill};
    feed.appends = true; // it commits
    for (size_t i = 0; i < entries.size(); ++i)
      work(entries[i], entries[(i + 1) % entries.size()], entries, prefill, park);
    if (terminals.size() > 1)
      goesTo(stages[0], "STOPPED", "budget == 0");
    initial = start;
  }

  void admission(Stage &s, const std::string &to, const std::string &other) {
    Scope scope = scopeOf(s);
    if (chance(30))
      statements(s, scope, 1 + below(2), 1);
    s.next = {to};
    if (!other.empty() && other != to)
      goesTo(s, other, boolean(scope, 1));
    if (chance(70))
      goesTo(s, "DONE", "finished");
  }

  static void goesTo(Stage &s, const std::string &state, const std::string &condition) {
    s.next.insert(s.next.begin(), state);
    s.conditions.insert(s.conditions.begin(), condition);
  }

  /// A few statements of any kind.
  void some(Stage &s, uint64_t most) {
    Scope scope = scopeOf(s);
    statements(s, scope, below(most + 1), 1);
  }

  /// Stages from `state` on, which at last go to `next`.
  void work(const std::string &state, const std::string &next, const std::vector<std::string> &entries,
            const std::string &prefill, const std::string &park) {
    Variable draft = drafts();
    Stage *last = nullptr;
    switch (below(draft.name.empty() ? 4 : 11)) {
    case 0:
    case 1:
      last = &newStage(state);
      decode(*last);
      break;
    case 2:
      last = &newStage(state);
      count(*last);
      break;
    case 3:
      last = &newStage(state);
      if (rows >= 2)
        branch(*last);
      else
        decode(*last);
      break;
    case 4:
    case 5:
    case 6:
      last = verify(state, draft, /*loops=*/true);
      break;
    default:
      last = verify(state, draft, /*loops=*/false);
    }
    Scope scope = scopeOf(*last);
    if (chance(3))
      muchOf(*last);
    last->next.push_back(next);
    if (chance(12)) {
      last->other = stateName();
      goesTo(*last, last->other, boolean(scope, 1));
    }
    if (chance(30))
      goesTo(*last, entries[below(entries.size())], boolean(scope, 2));
    if (!park.empty() && chance(30))
      goesTo(*last, park, boolean(scope, 1));
    if (chance(85)) // what was appended beside the results is fed first
      goesTo(*last, prefill, "kv.target.lag != 1");
    goesTo(*last, "DONE", chance(85) ? "finished" : "budget < " + std::to_string(range(1, 4)));
  }

  /// More of one thing than anybody writes.
  void muchOf(Stage &s) {
    std::string text;
    Scope scope = scopeOf(s);
    switch (below(6)) {
    case 0: // traced values
      for (int64_t i = range(20, 40); i > 0; --i)
        s.statements.push_back(fmt::format("- trace: budget + {}", 1000 + i));
      return;
    case 1: // tokens of a list
      for (int64_t i = range(100, 600); i > 0; --i)
        text += (text.empty() ? "" : ", ") + literal(Kind::Token);
      s.statements.push_back(fmt::format("- append([{}])", text));
      return;
    case 2: // parts of a sequence
      text = sequence(scope, 3, 0);
      for (int64_t i = range(10, 90); i > 0; --i)
        text += " + " + sequence(scope, 3, 0);
      s.statements.push_back("- append(" + text + ")");
      return;
    case 3: // `if`s in each other
      for (int64_t i = range(5, 40), column = 0; i > 0; --i, column += 4)
        text += (text.empty() ? "" : "\n") + std::string(column, ' ') + "- if: budget > " + std::to_string(i) + "\n" +
                std::string(column + 2, ' ') + "do:" + (i == 1 ? " []" : "");
      s.statements.push_back(text);
      return;
    case 4: // calls, each of which waits for a tick of its own
      for (int64_t i = range(2, 9); i > 0; --i)
        s.statements.push_back("- target(tokens[kv.target.len:-1], chunk=1, keep=none)");
      return;
    default: { // sequences that double
      std::string before = fresh();
      s.statements.push_back(fmt::format("- {}: {}", before, quoted(sequence(scope, 2, 0))));
      for (int64_t i = range(2, 8); i > 0; --i) {
        const std::string next = fresh();
        s.statements.push_back(fmt::format("- {}: {} + {}", next, before, before));
        before = next;
      }
      s.statements.push_back("- append(" + before + ")");
    }
    }
  }

  void decode(Stage &s) {
    const std::string next = fresh(), appended = fresh();
    some(s, 2);
    if (chance(4))
      s.statements.push_back(fmt::format("- target({}, keep=none)", fed(scopeOf(s))));
    s.statements.push_back(fmt::format("- {}: argmax(target([last]))", next));
    Scope scope = scopeOf(s);
    scope.variables.push_back({next, Kind::Seq, 1});
    statements(s, scope, below(3), 1);
    s.statements.push_back(fmt::format("- {}: append({})", appended, chance(80) ? next : next + "[0]"));
    scope.variables.push_back({appended, Kind::I32});
    s.statements.push_back(fmt::format("- count: {} += {}", metric(), appended));
    statements(s, scope, below(3), 1);
    s.appends = true;
  }

  /// What a call may be fed: rarely what it should be.
  std::string fed(const Scope &scope) { return sequence(scope, std::min<int64_t>(rows, 128), 1); }

  /// A stage that moves on by itself.
  void count(Stage &s) {
    const std::string counter = fresh();
    fieldLines.push_back(fmt::format("{}: i32", counter));
    fields.push_back({counter, Kind::I32});
    some(s, 4);
    s.statements.push_back(fmt::format("- {0}: {0} + 1", counter));
    s.progress = counter;
  }

  /// A field for drafts; without a name when none fits into a pass.
  Variable drafts() {
    for (const Variable &f : fields)
      if (f.kind == Kind::Seq && f.size + 1 <= rows && chance(60))
        return f;
    if (rows < 2 || chance(30))
      return {"", Kind::Seq};
    Variable f{fresh(), Kind::Seq, range(1, std::min<int64_t>(rows - 1, 9))};
    fieldLines.push_back(fmt::format("{}: token[{}]", f.name, sizeText(f.size)));
    fields.push_back(f);
    return f;
  }

  /// The model drafts, token by token: a loop of the tick. Perhaps it keeps what it drew from, in `kept`.
  void draftByModel(Stage &s, const Variable &draft, const std::string &kept) {
    const std::string l = fresh(), i = fresh();
    s.statements.push_back(fmt::format("- {}: '[]'", draft.name));
    if (!kept.empty())
      s.statements.push_back(fmt::format("- {}: '[]'", kept));
    Scope scope = scopeOf(s);
    std::vector<std::string> lines = {
        fmt::format("- for: {} in 0..{}", i,
                    chance(70) ? fmt::format("min({}, budget)", sizeText(draft.size)) : sizeText(draft.size)),
        "  do:", fmt::format("    - {}: target([last] if {} == 0 else {}[-1:], kv=draft)", l, i, draft.name),
        fmt::format("    - {0}: {0} + {1}({2}[-1:])", draft.name, chance(50) ? "argmax" : "sample", l)};
    if (lines.back().find("sample") != std::string::npos) {
      lines.back().insert(lines.back().size() - 1, chance(50) ? ", sampling" : ", sampling, noise=1");
      samples = true;
    }
    if (!kept.empty())
      lines.push_back(fmt::format("    - {0}: {0} + {1}[-1:]", kept, l));
    Scope inner = scope;
    inner.variables.push_back({i, Kind::I32});
    for (uint64_t n = below(3); n > 0; --n)
      for (const std::string &line : statement(s, inner, 1))
        lines.push_back("    " + line);
    if (chance(25)) { // a second call of each round, perhaps in a loop of its own, which has no round at times
      const std::string m = fresh();
      std::string indent = "    ";
      samples = true;
      if (i.size() % 2 == 1) { // so that other seeds give what they gave before
        const std::string often = chance(50) ? fmt::format("{} % 2", i) : std::to_string(range(0, 2));
        lines.push_back(fmt::format("    - for: {} in 0..{}", fresh(), often));
        lines.push_back("      do:");
        indent += "    ";
      }
      lines.push_back(fmt::format("{}- {}: max_prob(target({}[:1], kv=draft))", indent, m, draft.name));
      lines.push_back(fmt::format("{}- trace: {}[0]", indent, m));
    }
    for (std::string &line : lines)
      s.statements.push_back(std::move(line));
  }

  /// Several tokens after the last one, of which one is kept, or none.
  void branch(Stage &s) {
    const std::string list = fresh(), parents = fresh(), best = fresh(), path = fresh(), appended = fresh();
    some(s, 2);
    Scope scope = scopeOf(s);
    std::string tokens = "[last", hangs = "[-1";
    for (int64_t i = 1, n = range(2, std::min<int64_t>(rows, 6)); i < n; ++i) {
      tokens += ", " + (chance(50) ? token(scope, 1) : literal(Kind::Token));
      hangs += fmt::format(", {}", range(0, i - 1));
    }
    s.statements.push_back(fmt::format("- {}: {}", list, quoted(tokens + "]")));
    s.statements.push_back(fmt::format("- {}: {}", parents, quoted(hangs + "]")));
    const bool draws = chance(50);
    samples |= draws;
    const std::string call = fmt::format("target({}, parents={}, kv=draft)", list, parents);
    s.statements.push_back(draws ? fmt::format("- {}: sample({}, sampling)", best, call)
                                 : fmt::format("- {}: argmax({})", best, call));
    s.statements.push_back(fmt::format("- {}: follow({}, {}, {})", path, list, parents, best));
    s.statements.push_back(fmt::format("- {0}: append(map(k in 0..len({1}), {2}[{1}[k]]))", appended, path, best));
    s.statements.push_back(fmt::format("- kv.target.keep: len(tokens) - 1, path={}", path));
    s.statements.push_back(fmt::format("- count: {} += {}", metric(), appended));
    scope.variables.push_back({appended, Kind::I32});
    statements(s, scope, below(3), 1);
    s.appends = true;
  }

  Stage *verify(const std::string &state, const Variable &draft, bool loops) {
    Stage *s = &newStage(state);
    some(*s, 2);
    const std::string kept = loops && chance(50) ? fresh() : "";
    if (!kept.empty())
      fieldLines.push_back(fmt::format("{}: logits[{}]", kept, sizeText(draft.size)));
    if (loops && ofCalls() % 3 == 0) { // a call in front of the loop, whose rows are dropped
      s->statements.push_back("- trace: max_prob(target([last], kv=draft))[0]");
      s->statements.push_back("- kv.target.keep: len(tokens) - 1");
      samples = true;
    }
    if (loops)
      draftByModel(*s, draft, kept);
    else
      s->statements.push_back(fmt::format("- {}: {}", draft.name, quoted(sequence(scopeOf(*s), draft.size, 2))));
    if (loops && chance(40)) {
      s->statements.push_back("- kv.target.keep: len(tokens) - 1"); // without the drafts
    } else if (chance(60) || loops) {
      const std::string second = stateName();
      s->next = {second};
      s = &newStage(second);
      some(*s, 1);
    }
    const bool inferred = chance(40);
    const std::string best = fresh(), accepted = fresh(), appended = fresh();
    if (kept.empty()) {
      s->statements.push_back(fmt::format("- {}: argmax(target([last] + {}, kv=draft))", best, draft.name));
    } else { // what is drawn where the drafts' distributions are taken away
      samples = true;
      const std::string l = fresh(), p = fresh();
      s->statements.push_back(fmt::format("- {}: target([last] + {}, kv=draft)", l, draft.name));
      s->statements.push_back(fmt::format("- {}: prob({}, {}, sampling)", p, kept, draft.name));
      s->statements.push_back(fmt::format("- {}: sample({}, sampling, noise=2, minus={})", best, l, kept));
      s->statements.push_back(fmt::format("- trace: sum(k in 0..len({0}), {0}[k])", p));
    }
    s->statements.push_back(
        fmt::format("- {0}: prefix_while(i in 0..len({1}), {1}[i] == {2}[i])", accepted, draft.name, best));
    Scope scope = scopeOf(*s);
    scope.variables.push_back({accepted, Kind::I32});
    scope.variables.push_back({best, Kind::Seq, draft.size + 1});
    statements(*s, scope, below(3), 1);
    if (inferred) { // what the next stage reads becomes a field
      const std::string third = stateName();
      s->next = {third};
      s = &newStage(third);
    }
    s->statements.push_back(fmt::format("- {0}: append({1}[:{2}] + [{3}[{2}]])", appended, draft.name, accepted, best));
    s->statements.push_back("- kv.target.keep: len(tokens) - 1");
    s->statements.push_back(fmt::format("- count: {} += {}", metric(), appended));
    scope.variables.push_back({appended, Kind::I32});
    statements(*s, scope, below(3), 1);
    s->appends = true;
    return s;
  }

  //===--- statements -----------------------------------------------------===//

  std::string metric() {
    if (metrics.empty() || chance(30))
      metrics.push_back(fresh());
    return metrics[below(metrics.size())];
  }

  void statements(Stage &s, Scope &scope, uint64_t count, int depth) {
    for (; count > 0; --count)
      for (std::string &line : statement(s, scope, depth))
        s.statements.push_back(std::move(line));
  }

  std::vector<std::string> statement(Stage &s, Scope &scope, int depth) {
    switch (below(11)) {
    case 9:
    case 10:
      if (depth > 0 && scope.binders < 2)
        return loopStatement(s, scope, depth);
      [[fallthrough]];
    case 0:
    case 1:
      if (!fields.empty()) {
        const Variable &f = fields[below(fields.size())];
        return {fmt::format("- {}: {}", f.name, quoted(isList(f.kind) ? list(f, scope, 2) : value(f.kind, scope, 3)))};
      }
      [[fallthrough]];
    case 2: {
      Variable local{fresh(), oneOf({Kind::I32, Kind::F32, Kind::Bool, Kind::Seq, Kind::Seq, Kind::Numbers,
                                     Kind::Floats, Kind::Flags, Kind::Table})};
      local.size = range(1, 20);
      local.rows = local.kind == Kind::Table ? range(1, 4) : 0;
      std::vector<std::string> lines = {fmt::format(
          "- {}: {}", local.name, quoted(isList(local.kind) ? list(local, scope, 2) : value(local.kind, scope, 3)))};
      if (isList(local.kind))
        lines.push_back(fmt::format("- count: {} += len({})", metric(), local.name));
      else if (s.slot)
        lines.push_back(fmt::format("- trace: {}", local.name));
      else
        lines.push_back(fmt::format("- count: {} += {}", metric(),
                                    local.kind == Kind::I32   ? local.name
                                    : local.kind == Kind::F32 ? fmt::format("(1 if {} > 0.5 else 2)", local.name)
                                                              : fmt::format("(1 if {} else 2)", local.name)));
      scope.variables.push_back(local);
      return lines;
    }
    case 3:
      return {fmt::format("- count: {} += {}", metric(), i32(scope, 2))};
    case 4:
      if (!s.slot)
        return {fmt::format("- count: {} += 1", metric())};
      return {"- trace: " + quoted(value(oneOf({Kind::I32, Kind::F32, Kind::Bool, Kind::Token}), scope, 2))};
    case 5:
      if (!policies.empty()) {
        const Policy &p = policies[below(policies.size())];
        std::vector<std::string> arguments;
        for (size_t i = 0; i < p.arguments; ++i)
          arguments.push_back(i32(scope, 1));
        return {fmt::format("- {}.observe: {}", p.name, quoted(fmt::format("{}", fmt::join(arguments, ", "))))};
      }
      [[fallthrough]];
    case 6:
      if (depth > 0) {
        std::vector<std::string> lines = {"- if: " + quoted(boolean(scope, 2)), "  do:"};
        for (bool otherwise : {false, true}) {
          if (otherwise && chance(50))
            break;
          if (otherwise)
            lines.push_back("  else:");
          Scope inner = scope;
          for (uint64_t i = 1 + below(2); i > 0; --i)
            for (const std::string &line : statement(s, inner, depth - 1))
              lines.push_back("    " + line);
        }
        return lines;
      }
      [[fallthrough]];
    case 7:
      if (s.slot && chance(30)) {
        s.appends = s.appends || depth > 0;
        return {"- " + fmt::format("append({})", sequence(scope, range(1, 4), 1))};
      }
      [[fallthrough]];
    default:
      if (s.slot && chance(15))
        return {fmt::format("- kv.target.keep: {}", quoted(chance(70) ? "len(tokens) - 1" : i32(scope, 1)))};
      return {fmt::format("- count: {} += {}", metric(), i32(scope, 1))};
    }
  }

  /// A local, and a loop that changes it.
  std::vector<std::string> loopStatement(Stage &s, Scope &scope, int depth) {
    Variable local{fresh(), oneOf({Kind::I32, Kind::F32, Kind::Bool, Kind::Seq, Kind::Numbers})};
    local.size = range(1, 9);
    const auto any = [&](const Scope &at) {
      return quoted(isList(local.kind) ? list(local, at, 2) : value(local.kind, at, 2));
    };
    std::vector<std::string> lines = {fmt::format("- {}: {}", local.name, any(scope))};
    Scope inner = scope;
    const int64_t rounds = range(1, 6);
    if (chance(60)) {
      lines.push_back("- for: " + over(scope, inner, rounds, 2));
    } else {
      Scope test = scope;
      test.variables.push_back(local);
      lines.push_back("- while: " + quoted(boolean(test, 2)));
      lines.push_back(fmt::format("  bound: {}", rounds));
    }
    lines.push_back("  do:");
    // Longer in each round, or another one.
    const bool grows = isList(local.kind) && chance(40);
    const std::string more = local.kind == Kind::Seq ? token(inner, 1) : i32(inner, 1);
    inner.variables.push_back(local);
    for (uint64_t i = below(3); i > 0; --i)
      for (const std::string &line : statement(s, inner, depth - 1))
        lines.push_back("    " + line);
    if (grows)
      lines.push_back(fmt::format("    - {0}: {0} + [{1}]", local.name, more));
    else
      lines.push_back(fmt::format("    - {}: {}", local.name, any(inner)));
    local.size += rounds;
    scope.variables.push_back(local);
    if (isList(local.kind))
      lines.push_back(fmt::format("- count: {} += len({})", metric(), local.name));
    else
      lines.push_back(s.slot ? fmt::format("- trace: {}", local.name)
                             : fmt::format("- count: {} += (1 if {} == {} else 2)", metric(), local.name, local.name));
    return lines;
  }

  //===--- text -----------------------------------------------------------===//

  static std::string indented(const std::vector<std::string> &lines, int columns) {
    std::string out;
    for (std::string line : lines) {
      for (size_t at = line.find('\n'); at != std::string::npos; at = line.find('\n', at + 1))
        line.insert(at + 1, columns, ' ');
      out += std::string(columns, ' ') + line + "\n";
    }
    return out;
  }

  std::string text() {
    std::string out = fmt::format("pipeline: {}\nmodels:\n  target: {{graph: model.yaml}}\n", fresh());
    if (!params.empty())
      out += "params:\n" + indented(params, 2);
    if (!fieldLines.empty())
      out += "request:\n" + indented(fieldLines, 2);
    out += "states:\n  fault: FAILED\n";
    for (const Stage &s : stages) {
      std::vector<std::string> next;
      for (const std::string &n : s.next)
        if (std::find(next.begin(), next.end(), n) == next.end())
          next.push_back(n);
      for (const std::string &state : {s.state, s.other})
        if (!state.empty())
          out += fmt::format("  {}: {{{}next: [{}]}}\n", state,
                             state == initial ? "initial: true, "
                             : s.slot         ? "slot: true, "
                             : chance(50)     ? "parked: true, "
                                              : "",
                             fmt::join(next, ", "));
    }
    for (const std::string &t : terminals)
      out += fmt::format("  {}: {{terminal: true}}\n", t);
    out += "  FAILED: {terminal: true}\n";
    out += fmt::format("kv:\n  target: {{pages: {}, page_tokens: {}{}{}}}\n", pages, pageTokens,
                       chance(60) ? fmt::format(", watermark: {:.2f}", 0.01 * range(1, 100)) : "",
                       chance(40)   ? ", on_full: fail"
                       : chance(50) ? ", on_full: wait" + (chance(50) ? ", reserve: " + sizeText(range(0, 20)) : "")
                                    : "");
    if (!policyText.empty())
      out += "policies:\n" + policyText;
    out += "stages:\n";
    for (const Stage &s : stages) {
      out += fmt::format("  {}:\n    on: {}\n{}    do:{}\n{}", s.name,
                         s.other.empty() ? s.state : fmt::format("[{}, {}]", s.state, s.other),
                         s.slot ? "" : admission(), s.statements.empty() ? " []" : "", indented(s.statements, 6));
      if (!s.progress.empty())
        out += "    progress: " + s.progress + "\n";
      std::string go;
      for (size_t i = 0; i < s.next.size(); ++i)
        go += i < s.conditions.size() ? fmt::format("{} if {} else ", s.next[i], s.conditions[i]) : s.next[i];
      out += fmt::format("    goto: {}\n", go);
    }
    return out;
  }

  /// With one thing changed.
  std::string changed(std::string out) {
    std::vector<std::pair<size_t, size_t>> words; // begin, size
    for (size_t i = 0; i < out.size();) {
      size_t end = i;
      while (end < out.size() && (std::isalnum(static_cast<unsigned char>(out[end])) || out[end] == '_'))
        ++end;
      if (end > i)
        words.push_back({i, end - i});
      i = std::max(end, i + 1);
    }
    const auto [at, size] = words[below(words.size())];
    const std::string word = out.substr(at, size);
    const auto [other, otherSize] = words[below(words.size())];
    switch (below(8)) {
    case 0:
      return out.erase(at, size);
    case 1:
      return out.replace(at, size, std::string(out, other, otherSize));
    case 2:
      return out.replace(at, size,
                         oneOf<std::string>({"0", "-1", "2147483648", "1e39", "true", "tokens", "best", "none",
                                             "99999999999999999999", "65537", "0.5", "kv.target.len", "[1, 2]"}));
    case 3:
      return out.erase(below(out.size()), 1);
    case 4:
      return out.insert(below(out.size()),
                        oneOf<std::string>({"(", ")", "[", "]", ":", ",", " ", "-", "+", "'", "#", "\n", "."}));
    case 5: { // a line twice
      const size_t begin = out.rfind('\n', at) + 1, end = out.find('\n', at) + 1;
      return out.insert(begin, out.substr(begin, end - begin));
    }
    case 6: { // a line less
      const size_t begin = out.rfind('\n', at) + 1, end = out.find('\n', at) + 1;
      return out.erase(begin, end - begin);
    }
    default:
      return out.insert(at, word);
    }
  }

  /// Who gets a slot first, of those that wait for a stage.
  std::string admission() {
    const auto below = [this](uint64_t n) { return ofAdmission() % n; };
    static constexpr const char *keys[] = {"priority",
                                           "-priority",
                                           "arrived - 3 * priority",
                                           "prompt_len",
                                           "-deadline_ms",
                                           "f32(prompt_len) * 0.5",
                                           "arrived_ms % 4",
                                           "budget if finished else 1"};
    std::string out;
    if (below(3) == 0) {
      out = "    order: [";
      for (uint64_t n = 1 + below(3); n > 0; --n)
        out += keys[below(std::size(keys))] + std::string(n > 1 ? ", " : "]\n");
    }
    if (below(4) == 0)
      out += fmt::format("    limit: {}\n", 1 + below(3));
    return out;
  }

  std::vector<Request> requests() {
    std::vector<Request> out;
    for (uint64_t i = 0, count = 1 + below(5); i < count; ++i) {
      Request r;
      r.id = fmt::format("r{}", i);
      const int64_t kinds = range(2, 6);
      for (int64_t n = chance(80) ? range(1, 24) : range(1, 60); n > 0; --n)
        r.tokens.push_back(static_cast<int32_t>(3 + 7 * below(kinds)));
      r.maxNewTokens = range(chance(10) ? 0 : 1, 12);
      r.eos.emplace();
      for (uint64_t n = below(chance(10) ? 8 : 3); n > 0; --n)
        r.eos->push_back(static_cast<int32_t>(below(kVocab)));
      r.priority = static_cast<int32_t>(below(3)) - 1;
      if (chance(50))
        r.sampling = {0.25f * static_cast<float>(range(0, 6)), static_cast<int32_t>(chance(30) ? range(0, 20) : 0),
                      chance(30) ? 0.8f : 1.0f, chance(30) ? 0.02f : 0.0f, static_cast<uint32_t>(below(100))};
      out.push_back(std::move(r));
    }
    return out;
  }

  std::mt19937_64 ofAdmission, ofCalls, ofParams;
  bool samples = false;
  int64_t slots = 8, rows = 64, pages = 64, pageTokens = 16;
  unsigned stateCount = 0;
  std::string initial, policyText;
  std::vector<std::string> params, fieldLines, terminals, metrics;
  std::vector<Stage> stages;
  std::vector<Variable> inputs;
};

} // namespace

RandomPipeline makePipeline(uint64_t seed, bool wordy) { return Generator(seed, wordy).make(); }

} // namespace megalith::random_pipelines
