//===- BufferStages.cpp - stages over buffers -----------------------------===//
//
// Statements, and the proof that items do not meet. Expressions are those of other pipelines.
//===----------------------------------------------------------------------===//
#include "BufferStages.h"
#include "Expressions.h"
#include "megalith/Syntax/Parse.h"
#include "llvm/ADT/STLExtras.h"
#include <map>

namespace megalith::sema {

namespace {
/// Part of a buffer that a stage writes.
struct Write {
  enum By {
    Own,   ///< its first index is the item's number
    Order, ///< its first index is `order[i]`, where a stage before sorted all of `order`
    Run,   ///< it is `offset[i]:offset[i + 1]`, where a stage before made `offset` of sums of no negative number
    Other  ///< what no rule covers
  } by = Other;
  std::string through = {}; ///< `order` or `offset`
  std::string name;
  SourceLoc loc;
  bool always = false; ///< not below an `if`
  Range range = {};
  bool whole = false; ///< by `scan` or `sort`
};

class BufferStages {
public:
  explicit BufferStages(Context &ctx) : ctx(ctx), diags(ctx.diags) {}

  void check(const ast::StageDecl &decl) {
    CheckedItems stage;
    stage.name = decl.name.text;
    stage.loc = decl.name.loc;
    Locals locals;
    Scope scope;
    scope.kind = Scope::Items;
    scope.locally = &locals;
    scope.noCalls = scope.noEffects = "a stage over buffers";
    ctx.here = &locals;
    ctx.bufferReads.clear();
    writes.clear();
    hasItems = decl.over.has_value();
    if (decl.over && !checkItems(decl, stage, scope))
      return;
    if (decl.mapping) {
      static const char *const words[] = {"serial", "lane", "warp", "auto"};
      stage.mapping = decl.mapping->text;
      if (llvm::none_of(words, [&](const char *word) { return stage.mapping == word; }))
        diags.report(Diag::WrongNodeKind, decl.mapping->loc, fmt::format("`mapping` of stage `{}`", stage.name),
                     "`serial`, `lane`, `warp` or `auto`", fmt::format("`{}`", stage.mapping));
      else if (!decl.over)
        diags.report(Diag::MissingKey, decl.mapping->loc, fmt::format("`mapping` of stage `{}`", stage.name), "over");
    }
    checkBody(decl.body, stage.body, scope);
    for (const Locals::Entry &local : locals.all)
      if (!local.used && !local.wrong) {
        diags.report(Diag::UnusedLocal, local.name.loc, local.name.text, "buffer");
        std::vector<std::string> names;
        for (const CheckedBuffer &b : ctx.buffers.buffers)
          names.push_back(b.name);
        diags.suggest(local.name.text, names);
      }
    checkMeetings();
    for (const Write &write : writes)
      noteWritten(write, stage);
    ctx.here = nullptr;
    ctx.buffers.stages.push_back(std::move(stage));
  }

private:
  Expressions with(Scope &scope) const { return {ctx, scope}; }

  bool checkItems(const ast::StageDecl &decl, CheckedItems &stage, Scope &scope) {
    const ast::Name &name = *decl.over;
    int64_t most = 0;
    if (!with(scope).checkRange(*decl.items, "`over`", scope, stage.low, stage.high, most))
      return false;
    if (ctx.isReserved(name.text)) {
      diags.report(Diag::ReservedName, name.loc, name.text, "the number of an item");
      return false;
    }
    if (auto it = ctx.declared.find(name.text); it != ctx.declared.end()) {
      diags.report(Diag::DuplicateName, name.loc, name.text, it->second);
      return false;
    }
    if (!isSize(*stage.low) || !isSize(*stage.high)) {
      diags.report(
          Diag::BufferShape, decl.items->loc,
          fmt::format("the items of stage `{}` must be known before it runs: dims and numbers, by `+`, `-` and `*`",
                      stage.name));
      return false;
    }
    stage.binder = name.text;
    scope.binders.emplace_back(name.text,
                               Range{stage.low->range.lo, std::max(stage.low->range.lo, stage.high->range.hi - 1)});
    return true;
  }

  void checkBody(const std::vector<ast::Stmt> &body, std::vector<BufferStmt> &out, Scope &scope) {
    for (const ast::Stmt &s : body)
      checkStatement(s, out, scope);
  }

  void checkStatement(const ast::Stmt &s, std::vector<BufferStmt> &out, Scope &scope) {
    switch (s.kind) {
    case ast::Stmt::Assign:
      if (s.values.empty() || !s.values[0]) // was reported
        return;
      if (s.place)
        return s.place->kind == ast::Expr::Slice ? checkCopy(s, out, scope) : checkElement(s, out, scope);
      if (ctx.buffer(s.target.text))
        return checkWhole(s, out, scope);
      return checkLocal(s, out, scope);
    case ast::Stmt::If: {
      BufferStmt branch;
      branch.kind = BufferStmt::If;
      branch.loc = s.loc;
      branch.values.push_back(with(scope).expect(*s.values[0], Elem::Bool, "the condition of `if`"));
      const bool outside = always;
      always = false;
      for (auto [from, to] : {std::pair(&s.body, &branch.body), {&s.otherwise, &branch.otherwise}}) {
        Scope inner = scope; // its locals end with it
        checkBody(*from, *to, inner);
      }
      always = outside;
      if (branch.values[0])
        out.push_back(std::move(branch));
      return;
    }
    case ast::Stmt::Effect:
      if (s.values[0] && with(scope).check(*s.values[0]))
        diags.report(Diag::NoEffect, s.values[0]->loc);
      return;
    case ast::Stmt::For:
    case ast::Stmt::While:
      diags.report(Diag::Unsupported, s.loc, s.kind == ast::Stmt::For ? "`for` over buffers" : "`while` over buffers",
                   "`prefix_while`, `count`, `sum` or another function of a range, or items of a stage");
      return;
    case ast::Stmt::Count:
    case ast::Stmt::Trace:
    case ast::Stmt::Repeat:
      diags.report(Diag::EffectNotAllowed, s.loc,
                   s.kind == ast::Stmt::Count   ? "`count:`"
                   : s.kind == ast::Stmt::Trace ? "`trace:`"
                                                : "`repeat:`",
                   "a stage over buffers");
      return;
    }
  }

  void checkLocal(const ast::Stmt &s, std::vector<BufferStmt> &out, Scope &scope) {
    const ast::Name &name = s.target;
    const auto taken = ctx.declared.find(name.text);
    const bool binds = llvm::any_of(scope.binders, [&](const auto &b) { return b.first == name.text; });
    if (ctx.bad.count(name.text))
      return;
    if (ctx.isReserved(name.text)) {
      diags.report(Diag::ReservedName, name.loc, name.text, "a local");
    } else if (taken != ctx.declared.end() || binds) {
      diags.report(Diag::CannotAssign, name.loc, name.text, binds ? "the number of an item" : taken->second);
    } else if (scope.locals.count(name.text)) {
      diags.report(Diag::DuplicateName, name.loc, name.text, "a local, which has one value");
    } else {
      ExprRef v = with(scope).value(*s.values[0]);
      const int index = static_cast<int>(scope.locally->all.size());
      scope.locally->all.push_back({name, !v, false});
      Scope::Local local{index, scope.depth};
      if (v) {
        local.binding = Value{v->type, v->range};
        out.push_back(
            {.kind = BufferStmt::SetLocal, .name = name.text, .index = index, .values = {v}, .loc = name.loc});
      }
      scope.locals[name.text] = local;
    }
  }

  /// A buffer that a place names, with the indices there; null after a report.
  const CheckedBuffer *placeOf(const ast::Expr &e, const ast::Name &target, std::vector<const ast::Expr *> &written,
                               Scope &scope) {
    const CheckedBuffer *buffer = with(scope).bufferOf(e, written);
    if (buffer) {
      ctx.used.insert(buffer->name);
      return buffer;
    }
    if (const auto it = ctx.declared.find(target.text); it != ctx.declared.end() && !ctx.bad.count(target.text)) {
      diags.report(Diag::CannotAssign, target.loc, target.text, it->second);
    } else if (ctx.firstUse(target.text)) {
      std::vector<std::string> names;
      for (const CheckedBuffer &b : ctx.buffers.buffers)
        names.push_back(b.name);
      ctx.reportUnknown(Diag::UnknownName, target.loc, target.text, names);
    }
    return nullptr;
  }

  void checkElement(const ast::Stmt &s, std::vector<BufferStmt> &out, Scope &scope) {
    std::vector<const ast::Expr *> written;
    const CheckedBuffer *buffer = placeOf(*s.place, s.target, written, scope);
    if (!buffer)
      return;
    const auto elem = elemOf(buffer->dtype);
    if (!elem) {
      diags.report(Diag::OnlyCopied, s.target.loc, buffer->name, buffer->dtype);
      return;
    }
    if (written.size() != buffer->shape.size()) {
      diags.report(Diag::BufferIndices, s.place->loc, buffer->name, dimensions(buffer->shape.size()),
                   written.size() == 1 ? "1 index" : fmt::format("{} indices", written.size()));
      return;
    }
    std::vector<ExprRef> indices;
    const bool good = with(scope).checkIndices(written, indices);
    ExprRef v = with(scope).expect(*s.values[0], *elem, fmt::format("an element of `{}`", buffer->name));
    if (!good || !v)
      return;
    const Write::By by = ownership(*indices[0]);
    writes.push_back({by, through, buffer->name, s.target.loc, always && indices.size() == 1, v->range});
    forget(buffer->name);
    BufferStmt set{.kind = BufferStmt::SetElement, .name = buffer->name, .values = {v}, .loc = s.target.loc};
    set.values.insert(set.values.end(), indices.begin(), indices.end());
    out.push_back(std::move(set));
  }

  /// Which items may write where this is the first index. Sets `through`.
  Write::By ownership(const Expr &index) {
    through = "";
    if (isItem(index))
      return Write::Own;
    if (index.kind == Expr::BufferAt && sorted.count(index.name()) && index.args.size() == 1 &&
        isItem(*index.args[0])) {
      through = index.name();
      return Write::Order;
    }
    return Write::Other;
  }
  bool isItem(const Expr &e) const { return hasItems && e.kind == Expr::BinderRead && e.as<Place>().index == 0; }

  /// The bounds of a slice of a buffer: all of the dimension where none is written. False after a report.
  bool bounds(const ast::Expr &slice, const CheckedBuffer &buffer, size_t dimension, Scope &scope, ExprRef &low,
              ExprRef &high) {
    low = slice.args[1] ? with(scope).expect(*slice.args[1], Elem::I32, "a bound of a slice") : intConst(0, slice.loc);
    high =
        slice.args[2] ? with(scope).expect(*slice.args[2], Elem::I32, "a bound of a slice") : buffer.shape[dimension];
    return low && high;
  }

  /// `to[a:b]: from[i][c:d]`.
  void checkCopy(const ast::Stmt &s, std::vector<BufferStmt> &out, Scope &scope) {
    std::vector<const ast::Expr *> written, writtenFrom;
    const CheckedBuffer *to = placeOf(*s.place->args[0], s.target, written, scope);
    const ast::Expr &value = *s.values[0];
    const CheckedBuffer *from =
        value.kind == ast::Expr::Slice ? with(scope).bufferOf(*value.args[0], writtenFrom) : nullptr;
    if (!to)
      return;
    if (!from) {
      diags.report(Diag::TypeMismatch, value.loc, fmt::format("what is copied to `{}`", to->name),
                   "a slice of a buffer, such as `from[i][:n]`", "another expression");
      return;
    }
    ctx.used.insert(from->name);
    for (const auto &[buffer, indices, loc] :
         {std::tuple(to, written.size(), s.place->loc), {from, writtenFrom.size(), value.loc}})
      if (indices >= buffer->shape.size()) {
        diags.report(Diag::BufferIndices, loc, buffer->name, dimensions(buffer->shape.size()),
                     fmt::format("{} and a slice", indices == 1 ? "1 index" : fmt::format("{} indices", indices)));
        return;
      }
    BufferStmt copy{.kind = BufferStmt::Copy, .name = to->name, .from = from->name, .loc = s.target.loc};
    copy.lead = static_cast<int64_t>(written.size());
    std::vector<ExprRef> indices, indicesFrom;
    ExprRef low, high, lowFrom, highFrom;
    if (!with(scope).checkIndices(written, indices) || !bounds(*s.place, *to, written.size(), scope, low, high) ||
        !with(scope).checkIndices(writtenFrom, indicesFrom) ||
        !bounds(value, *from, writtenFrom.size(), scope, lowFrom, highFrom))
      return;
    const auto restOf = [](const CheckedBuffer &b, size_t lead) {
      return llvm::ArrayRef(b.shape).drop_front(lead + 1);
    };
    const auto rest = restOf(*to, written.size()), restFrom = restOf(*from, writtenFrom.size());
    const bool alike = rest.size() == restFrom.size() && llvm::all_of(llvm::zip(rest, restFrom), [](const auto &pair) {
                         return sameSize(*std::get<0>(pair), *std::get<1>(pair));
                       });
    if (to->dtype != from->dtype || !alike) {
      diags.report(Diag::CopySizes, s.target.loc,
                   to->dtype != from->dtype
                       ? fmt::format("`{}` is of {}, and `{}` of {}: a copy changes no type", to->name, to->dtype,
                                     from->name, from->dtype)
                       : fmt::format("what one number of the slice stands for is not of one shape in `{}` and in `{}`",
                                     to->name, from->name));
      return;
    }
    if (to == from) {
      diags.report(Diag::ItemsRace, s.target.loc, to->name);
      diags.note("a copy within one buffer may read what it has written");
      return;
    }
    ctx.bufferReads.push_back({from->name, indicesFrom, value.loc});
    forget(to->name);
    Write write{Write::Other, "", to->name, s.target.loc};
    if (!indices.empty()) {
      write.by = ownership(*indices[0]);
      write.through = through;
    } else if (isRun(*low, *high)) {
      write.by = Write::Run;
      write.through = low->name();
    }
    writes.push_back(write);
    llvm::append_range(copy.values, indices);
    copy.values.push_back(low);
    copy.values.push_back(high);
    llvm::append_range(copy.values, indicesFrom);
    copy.values.push_back(lowFrom);
    copy.values.push_back(highFrom);
    out.push_back(std::move(copy));
  }

  /// `offset[i]` and `offset[i + 1]`, where no element of `offset` is less than the one before it.
  bool isRun(const Expr &low, const Expr &high) const {
    if (low.kind != Expr::BufferAt || high.kind != Expr::BufferAt || low.name() != high.name() ||
        !rising.count(low.name()) || low.args.size() != 1 || high.args.size() != 1 || !isItem(*low.args[0]))
      return false;
    const Expr &next = *high.args[0];
    if (next.kind != Expr::Binary || next.as<BinaryOp>() != BinaryOp::Add)
      return false;
    for (int side : {0, 1}) {
      const auto one = evaluate(*next.args[1 - side]);
      if (isItem(*next.args[side]) && one && one->intValue == 1)
        return true;
    }
    return false;
  }

  /// `offset: scan(i in 0..n, value)`, `order: sort(i in 0..n, [key, ...])`.
  void checkWhole(const ast::Stmt &s, std::vector<BufferStmt> &out, Scope &scope) {
    const CheckedBuffer *buffer = ctx.buffer(s.target.text);
    ctx.used.insert(buffer->name);
    const ast::Expr &e = *s.values[0];
    const bool scans = e.kind == ast::Expr::Call && e.text == "scan",
               sorts = e.kind == ast::Expr::Call && e.text == "sort";
    if (!scans && !sorts) {
      diags.report(Diag::WholeBuffer, s.target.loc, buffer->name);
      diags.note(fmt::format("`- {}[i]: value` sets an element; `scan` and `sort` set all", buffer->name));
      return;
    }
    if (hasItems) {
      diags.report(Diag::ItemsMeet, s.target.loc, buffer->name);
      diags.note(fmt::format("`{}` stands in a stage without `over`, which runs once", e.text));
      return;
    }
    if (!e.binder || e.args.size() != 2 || !e.named.empty()) {
      diags.report(Diag::ArgumentCount, e.loc, e.text, scans ? "`i in a..b, value`" : "`i in a..b, [key, ...]`",
                   plural(e.args.size(), "argument"));
      return;
    }
    if (buffer->shape.size() != 1 || elemOf(buffer->dtype) != Elem::I32) {
      diags.report(Diag::TypeMismatch, s.target.loc, fmt::format("what `{}` gives a value", e.text),
                   "a buffer of i32 or i64 with one dimension",
                   fmt::format("{} of {}", dimensions(buffer->shape.size()), buffer->dtype));
      return;
    }
    const ast::Name &name = *e.binder;
    if (ctx.isReserved(name.text) || ctx.declared.count(name.text) || scope.locals.count(name.text)) {
      diags.report(Diag::DuplicateName, name.loc, name.text,
                   ctx.declared.count(name.text)   ? ctx.declared[name.text]
                   : scope.locals.count(name.text) ? "a local"
                                                   : "a word of the language");
      return;
    }
    BufferStmt whole{.kind = scans ? BufferStmt::Scan : BufferStmt::Sort,
                     .name = buffer->name,
                     .binder = name.text,
                     .loc = s.target.loc};
    ExprRef low, high;
    int64_t most = 0;
    if (!with(scope).checkRange(*e.args[0], fmt::format("`{}`", e.text), scope, low, high, most))
      return;
    const auto zero = evaluate(*low);
    if (!zero || zero->intValue != 0 || !sameSize(*high, *buffer->shape[0])) {
      diags.report(Diag::BufferShape, e.args[0]->loc,
                   fmt::format("the range of `{}` must be all of `{}`: `0..{}`", e.text, buffer->name,
                               ast::written(*sizeOf(buffer->name))));
      return;
    }
    whole.values.push_back(high);
    Scope inner = scope;
    inner.binders.emplace_back(name.text, Range{0, std::max<int64_t>(0, high->range.hi - 1)});
    std::vector<const ast::Expr *> keys;
    if (sorts && e.args[1]->kind == ast::Expr::List)
      for (const ast::ExprPtr &key : e.args[1]->args)
        keys.push_back(key.get());
    else
      keys.push_back(e.args[1].get());
    if (keys.empty() || keys.size() > limits::sortKeys) {
      diags.report(Diag::BadArgument, e.args[1]->loc, "keys", "sort",
                   fmt::format("from 1 to {} numbers", int(limits::sortKeys)));
      return;
    }
    for (const ast::Expr *key : keys) {
      ExprRef v = with(inner).expect(*key, Elem::I32, fmt::format("the value of `{}`", e.text));
      if (!v)
        return;
      whole.values.push_back(v);
    }
    if (llvm::any_of(ctx.bufferReads, [&](const BufferRead &read) { return read.name == buffer->name; })) {
      diags.report(Diag::ItemsRace, s.target.loc, buffer->name);
      diags.note(fmt::format("`{}` reads the buffer that it gives a value", e.text));
      return;
    }
    const bool rises = scans && whole.values[1]->range.lo >= 0 && whole.values[1]->range.hi * most <= INT32_MAX;
    writes.push_back({Write::Own, "", buffer->name, s.target.loc, false, {}, /*whole=*/true});
    ctx.holds.erase(buffer->name);
    (sorts ? sorted : rising).insert(buffer->name);
    if (scans && !rises)
      rising.erase(buffer->name);
    out.push_back(std::move(whole));
  }

  const ast::Expr *sizeOf(const std::string &name) const {
    const auto decl = llvm::find_if(ctx.in.buffers, [&](const ast::BufferDecl &b) { return b.name.text == name; });
    return decl->shape[0].get();
  }

  /// Of items, which run beside each other: each part that is written is of one item, and only that one reads it.
  void checkMeetings() {
    if (!hasItems)
      return;
    std::map<std::string, const Write *> first;
    for (const Write &write : writes) {
      const auto [it, fresh] = first.emplace(write.name, &write);
      const Write &other = *it->second;
      const bool same = other.by == write.by && other.through == write.through;
      if (write.by != Write::Other && same)
        continue;
      diags.report(Diag::ItemsMeet, write.loc, write.name);
      if (write.by == Write::Other)
        diags.note(fmt::format("an item writes `{0}[i]`, where `i` is its own number; `{0}[order[i]]`, where a stage "
                               "before has sorted `order`; or `{0}[offset[i]:offset[i + 1]]`, where a stage before has "
                               "made `offset` by `scan` of numbers that are not negative and have a bound, such as "
                               "`min(n, max(0, x[i]))`",
                               write.name));
      else
        diags.note(other.loc, "written in another way here");
    }
    for (const BufferRead &read : ctx.bufferReads) {
      const auto it = first.find(read.name);
      if (it == first.end() || it->second->by == Write::Other)
        continue;
      const Write &write = *it->second;
      if (write.by != Write::Run && !read.indices.empty() && ownership(*read.indices[0]) == write.by &&
          through == write.through)
        continue;
      diags.report(Diag::ItemsRace, read.loc, read.name);
      diags.note(write.loc, "written here; a later stage can read all of it");
    }
  }

  /// An element has changed: what was known of all no longer holds, in this stage too.
  void forget(const std::string &name) {
    ctx.holds.erase(name);
    rising.erase(name);
    sorted.erase(name);
  }

  /// For the stages after this one.
  void noteWritten(const Write &write, const CheckedItems &stage) {
    for (CheckedBuffer &buffer : ctx.buffers.buffers)
      if (buffer.name == write.name) {
        buffer.written = true;
        if (write.whole)
          return;
        const auto zero = stage.low ? evaluate(*stage.low) : std::nullopt;
        const bool all = write.always && write.by == Write::Own && zero && zero->intValue == 0 &&
                         buffer.shape.size() == 1 && sameSize(*stage.high, *buffer.shape[0]) &&
                         elemOf(buffer.dtype) == Elem::I32 &&
                         llvm::count_if(writes, [&](const Write &w) { return w.name == write.name; }) == 1;
        if (all)
          ctx.holds[write.name] = write.range;
      }
  }

  Context &ctx;
  Diagnostics &diags;
  bool hasItems = false, always = true;
  std::string through;                  ///< of the last ownership()
  std::vector<Write> writes;            ///< of the stage
  std::set<std::string> sorted, rising; ///< buffers that a stage before gave such a value
};
} // namespace

void checkBufferStages(Context &ctx) {
  BufferStages stages(ctx);
  for (const ast::StageDecl &stage : ctx.in.stages)
    stages.check(stage);
}

} // namespace megalith::sema
