// What follows a product moves into its stream: rounding, bias, activations, the
// residual, rope, the append to the KV pool, argmax. A kernel thread holds two
// output columns of each product of 16 rows; the `pair` attribute says which two:
//
//   adjacent   columns 2j and 2j + 1
//   half       columns j and j + dim/2 of a block of `dim`: rope's two partners; where only the first `turned` of a
//              block are turned, j and j + turned/2, and of the rest likewise
//   dual       column j of this product and of the product number `partner` of
//              the same stream: silu(gate) * up
//
// An operation moves when its operands are then at hand: values of the same pair,
// values from before the stream at the same columns, one value per row, vectors
// and constants.
#include "TensorUtil.h"
#include "megalith/Transforms/Passes.h"
#include <algorithm>
#include <optional>

namespace megalith::transforms {

using namespace ir;

namespace {

/// How the columns of one product are held.
struct Pair {
  Pairing kind = Pairing::Adjacent;
  int64_t dim = 0, turned = 0;
  unsigned partner = 0;
  bool neighbours = false; ///< rope turns them against each other: stays adjacent
  bool alone = false;      ///< stands in a kv.append or argmax: cannot become dual
};

/// The products of a stream that each of its values is computed from, and what
/// that asks of them.
class Pairs {
public:
  bool contains(Value v) const { return products.count(v); }

  void addProduct(Value v) {
    products[v] = {static_cast<unsigned>(pairs.size())};
    pairs.emplace_back();
  }

  /// Takes an operation of the stream into account; false, without a change, when
  /// no choice of pairs allows it.
  bool add(const Operation &op) {
    std::set<unsigned> from;
    for (Value v : op.operands)
      if (auto found = products.find(v); found != products.end())
        from.insert(found->second.begin(), found->second.end());
    switch (op.op) {
    case Op::RotateHalf:
      if (from.size() != 1 || !(op.get<attr::adjacent>() ? keepAdjacent(*from.begin()) : makeHalf(*from.begin(), op)))
        return false;
      break;
    case Op::KvAppend:
    case Op::ArgMax:
      for (Value v : op.operands) {
        auto found = products.find(v);
        if (found == products.end() || found->second.size() != 1 || pairs[*found->second.begin()].kind == Pairing::Dual)
          return false;
      }
      for (unsigned p : from)
        pairs[p].alone = true;
      break;
    default:
      if (from.size() > 2 || (from.size() == 2 && !makeDual(*from.begin(), *from.rbegin())))
        return false;
    }
    for (Value v : op.results)
      products[v] = from;
    return true;
  }

  const std::vector<Pair> &result() const { return pairs; }

private:
  bool makeHalf(unsigned p, const Operation &rotate) {
    Pair &pair = pairs[p];
    const int64_t dim = rotate.get<attr::dim>(), turned = rotate.get<attr::turned>();
    const bool other = pair.kind == Pairing::Half && (pair.dim != dim || pair.turned != turned);
    // Two lanes store together: pairs of what is turned, and of the rest, stand side by side in twos.
    const bool apart = turned && (turned % 4 != 0 || (dim - turned) % 4 != 0);
    if (pair.kind == Pairing::Dual || pair.neighbours || other || apart)
      return false;
    pair.kind = Pairing::Half;
    pair.dim = dim;
    pair.turned = turned;
    return true;
  }

  bool keepAdjacent(unsigned p) {
    if (pairs[p].kind != Pairing::Adjacent)
      return false;
    pairs[p].alone = pairs[p].neighbours = true;
    return true;
  }

  bool makeDual(unsigned a, unsigned b) {
    auto allows = [&](unsigned p, unsigned other) {
      const Pair &pair = pairs[p];
      return !pair.alone && (pair.kind == Pairing::Adjacent || (pair.kind == Pairing::Dual && pair.partner == other));
    };
    if (!allows(a, b) || !allows(b, a))
      return false;
    pairs[a].kind = pairs[b].kind = Pairing::Dual;
    pairs[a].partner = b;
    pairs[b].partner = a;
    return true;
  }

  std::vector<Pair> pairs;
  std::map<Value, std::set<unsigned>> products;
};

/// Fuses into one stream, which stands at `at` of `region`.
class EpilogueFuser {
public:
  EpilogueFuser(Module &module, Region &segment, Region &region, size_t at, bool mayDropRounds)
      : module(module), segment(segment), region(region), at(at), mayDropRounds(mayDropRounds) {}

  void run() {
    openGroup(segment, region.ops[at]);
    RegionIndex index(region);
    std::set<size_t> moved = choose(index);
    prune(index, moved);
    std::map<Value, Value> copies;
    for (size_t j : moved)
      appendToGroup(module, region, index, region.ops[at].region(), region.ops[j], copies);
    eraseOps(region, moved);
    setPairs();
    if (mayDropRounds)
      dropRounds();
    closeGroup(module, segment, region.ops[at]);
  }

private:
  Pairs pairsOfStream() const {
    Pairs pairing;
    for (const Operation &op : region.ops[at].region().ops) {
      if (op.op == Op::MatMul)
        pairing.addProduct(op.result());
      else if (std::any_of(op.operands.begin(), op.operands.end(), [&](Value v) { return pairing.contains(v); }))
        pairing.add(op);
    }
    return pairing;
  }

  /// All operations after the stream that may move into it.
  std::set<size_t> choose(const RegionIndex &index) const {
    Pairs pairing = pairsOfStream();
    std::set<size_t> moved;
    for (size_t j = at + 1; j < region.ops.size(); ++j)
      if (isAtHand(region.ops[j], index, pairing) && pairing.add(region.ops[j]))
        moved.insert(j);
    return moved;
  }

  /// True when every operand of `op` can be read column by column in the stream.
  bool isAtHand(const Operation &op, const RegionIndex &index, const Pairs &pairing) const {
    if (!isElementwise(op.op) && op.op != Op::RotateHalf && op.op != Op::KvAppend && op.op != Op::ArgMax)
      return false;
    std::optional<int64_t> columns;
    for (Value v : op.operands) {
      if (!pairing.contains(v))
        continue;
      const Type &type = module.type(v);
      bool sameColumns = !columns || *columns == type.size || op.op == Op::KvAppend;
      if (type.kind != Type::Rows || type.elem == Scalar::Token || !sameColumns)
        return false;
      columns = type.size;
    }
    if (!columns)
      return false;
    if (op.op == Op::KvAppend || op.op == Op::ArgMax)
      return true;
    if (module.type(op.result()).size != *columns)
      return false;
    for (Value v : op.operands) {
      if (pairing.contains(v))
        continue;
      int defined = index.definedAt(v);
      bool leaf = defined >= 0 && isLeaf(module, region.ops[defined]);
      if (!leaf && defined >= static_cast<int>(at))
        return false;
      const Type &type = module.type(v);
      if (type.kind == Type::Rows && type.size != *columns && type.size != 1)
        return false;
    }
    return true;
  }

  /// Takes operations out again that only make the stream store more: a square
  /// for a norm, say, beside the value itself, which is stored anyway.
  void prune(const RegionIndex &index, std::set<size_t> &moved) const {
    std::vector<size_t> order(moved.rbegin(), moved.rend());
    for (size_t j : order) {
      bool feedsStream = false;
      for (Value v : region.ops[j].results)
        for (size_t user : index.usersOf(v))
          feedsStream |= moved.count(user) != 0;
      if (feedsStream)
        continue;
      int64_t before = storedBytes(index, moved);
      moved.erase(j);
      if (storedBytes(index, moved) >= before)
        moved.insert(j);
    }
  }

  /// Bytes per row of what the stream would hand to operations outside.
  int64_t storedBytes(const RegionIndex &index, const std::set<size_t> &moved) const {
    int64_t bytes = 0;
    auto count = [&](const Operation &op) {
      for (Value v : op.results) {
        const std::vector<size_t> &users = index.usersOf(v);
        bool stored =
            std::any_of(users.begin(), users.end(), [&](size_t user) { return user != at && !moved.count(user); });
        const Type &type = module.type(v);
        if (stored && type.kind == Type::Rows)
          bytes += type.size * (type.elem == Scalar::BF16 || type.elem == Scalar::F16 ? 2 : 4);
      }
    };
    for (const Operation &op : region.ops[at].region().ops)
      count(op);
    for (size_t j : moved)
      count(region.ops[j]);
    return bytes;
  }

  void setPairs() {
    Pairs pairing = pairsOfStream();
    size_t next = 0;
    for (Operation &op : region.ops[at].region().ops) {
      if (op.op != Op::MatMul)
        continue;
      const Pair &pair = pairing.result()[next++];
      op.erase<attr::dim>();
      op.erase<attr::turned>();
      op.erase<attr::partner>();
      op.set<attr::pair>(pair.kind);
      if (pair.kind == Pairing::Half)
        op.set<attr::dim>(pair.dim);
      if (pair.turned)
        op.set<attr::turned>(pair.turned);
      if (pair.kind == Pairing::Dual)
        op.set<attr::partner>(static_cast<int64_t>(pair.partner));
    }
  }

  /// Under `numerics: fused` a value is rounded only where it is stored or feeds
  /// the KV pool or argmax, not between two operations of an epilogue.
  void dropRounds() {
    std::vector<Operation> &ops = region.ops[at].region().ops;
    std::map<Value, std::vector<Op>> users;
    std::set<Value> inside;
    for (const Operation &op : ops) {
      inside.insert(op.results.begin(), op.results.end());
      for (Value v : op.operands)
        users[v].push_back(op.op);
    }
    std::set<Value> usedOutside;
    for (size_t i = 0; i < region.ops.size(); ++i)
      if (i != at)
        for (Value v : capturedValues(region.ops[i]))
          usedOutside.insert(v);
    std::set<size_t> gone;
    for (size_t i = 0; i < ops.size(); ++i) {
      if (ops[i].op != Op::Round || !inside.count(ops[i].operands[0]) || usedOutside.count(ops[i].result()))
        continue;
      const std::vector<Op> &by = users[ops[i].result()];
      if (!std::all_of(by.begin(), by.end(), [](Op op) { return isElementwise(op) || op == Op::RotateHalf; }))
        continue;
      Value from = ops[i].result(), to = ops[i].operands[0];
      replaceUses(region.ops[at].region(), from, to);
      users[to] = by;
      gone.insert(i);
    }
    eraseOps(region.ops[at].region(), gone);
  }

  Module &module;
  Region &segment;
  Region &region;
  size_t at;
  bool mayDropRounds;
};

} // namespace

Module fuseEpilogues(Module module) {
  forEachTensorRegion(module, [&](Operation &model, Region &segment, Region &region) {
    bool fused = model.get<attr::numerics>() == Numerics::Fused;
    for (size_t i = 0; i < region.ops.size(); ++i)
      if (region.ops[i].op == Op::Stream)
        EpilogueFuser(module, segment, region, i, fused).run();
    removeUnusedLeaves(module, region);
  });
  return module;
}

} // namespace megalith::transforms
