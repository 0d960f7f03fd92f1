// Rows that are no chain: a row sees its own path, with the bits of plain decoding of that path.
// MEGALITH_TREES=2000 in the environment tries so many random trees.
#include "../../../lib/Reference/Tensor.h"
#include "TinyModel.h"
#include <cstdlib>

using namespace tiny;
using reference::PageTable;
using reference::PassOutput;
using reference::TensorModel;

namespace {

using Tokens = std::vector<int32_t>;
using Random = std::mt19937;

int below(Random &random, int n) { return int(random() % unsigned(n)); }

/// A slot that is fed by hand: `len` committed positions, and the rows of a run after them.
struct Slot {
  Tokens committed, rows, parents; ///< tokens; tokens and parents' places of the run's rows
  std::vector<int32_t> pages;

  int len() const { return int(committed.size()); }
  /// The tokens up to a row.
  Tokens pathTo(int row) const {
    Tokens path;
    for (; row >= 0; row = parents[row] - len())
      path.insert(path.begin(), rows[row]);
    path.insert(path.begin(), committed.begin(), committed.end());
    return path;
  }
  int positionOf(int row) const {
    int depth = 0;
    for (; row >= 0; row = parents[row] - len())
      ++depth;
    return len() + depth - 1;
  }
};

class Trees : public testing::Test {
protected:
  static constexpr int pageTokens = 4, pages = 512;

  void load(int window) {
    Settings s;
    s.window = window;
    s.givesBack = false;
    s.pages = pages;
    module = std::make_unique<ir::Module>(parse(autoregressive(s)));
    model = std::make_unique<TensorModel>(*module, *module->find(ir::Op::Model, "target"), weights, pages, pageTokens);
    nextPage = 0;
  }

  void takePages(Slot &slot, int places) {
    while (int(slot.pages.size()) * pageTokens < places)
      slot.pages.push_back(order[size_t(nextPage++)]);
  }
  /// Feeds some rows of a slot; `first`: the row of the run that comes first.
  void rowsOf(std::vector<Row> &out, int number, Slot &slot, int first) {
    takePages(slot, slot.len() + int(slot.rows.size()));
    for (int i = first; i < int(slot.rows.size()); ++i) {
      const int position = slot.positionOf(i);
      out.push_back({number, slot.rows[size_t(i)], position, slot.len() + i, position + 1, slot.parents[size_t(i)],
                     RowWantsLogits | RowIsDraft, RowNotWanted});
    }
  }
  /// `earlier`: of each slot the parents of rows that earlier calls of the run fed.
  std::vector<std::vector<float>> runRows(const std::vector<Row> &rows, const std::vector<Slot *> &slots,
                                          const std::vector<Tokens> &earlier) {
    std::vector<PageTable> tables;
    for (size_t i = 0; i < slots.size(); ++i)
      tables.push_back({0, &slots[i]->pages, slots[i]->len(), &earlier[i]});
    const PassOutput out = model->run(rows, tables);
    std::vector<std::vector<float>> logits;
    for (int64_t r = 0; r < out.logits.rows; ++r)
      logits.emplace_back(out.logits.row(r), out.logits.row(r) + out.logits.cols);
    return logits;
  }
  /// Plain decoding: the tokens as a chain from position 0; the logits of the last `wanted` rows.
  std::vector<std::vector<float>> decode(Slot &slot, const Tokens &tokens, int wanted) {
    takePages(slot, int(tokens.size()));
    std::vector<std::vector<float>> logits;
    for (size_t begin = 0; begin < tokens.size(); begin += 64) {
      std::vector<Row> rows;
      for (size_t i = begin; i < std::min(begin + 64, tokens.size()); ++i)
        rows.push_back({0, tokens[i], int(i), int(i), int(i) + 1, int(i) - 1,
                        int(i) >= int(tokens.size()) - wanted ? RowWantsLogits : 0u, RowNotWanted});
      Slot none;
      none.pages = slot.pages;
      for (auto &line : runRows(rows, {&none}, {{}}))
        logits.push_back(std::move(line));
    }
    return logits;
  }

  Weights weights;
  std::unique_ptr<ir::Module> module;
  std::unique_ptr<TensorModel> model;
  std::vector<int32_t> order;
  int nextPage = 0;
};

/// A random tree: what hangs on what is likely near.
void grow(Random &random, Slot &slot, int count) {
  for (int i = 0; i < count; ++i) {
    const int row = int(slot.rows.size());
    const int parent = below(random, 3) ? row - 1 : below(random, row + 1) - 1;
    slot.rows.push_back(below(random, vocab));
    slot.parents.push_back(slot.len() + parent);
  }
}

} // namespace

TEST_F(Trees, EachPathHasTheBitsOfPlainDecoding) {
  const char *wanted = std::getenv("MEGALITH_TREES");
  const int trees = wanted ? std::atoi(wanted) : 40;
  int compared = 0, calls = 0;
  for (int seed = 0; seed < trees; ++seed) {
    SCOPED_TRACE(seed);
    Random random{unsigned(seed)};
    load(std::vector<int>{0, 0, 5, 200}[seed % 4]);
    for (order.clear(); int(order.size()) < pages;)
      order.push_back(int(order.size()));
    std::shuffle(order.begin(), order.end(), random);
    // Two slots, since rows of others stand between. A round of attention ends at position 256.
    std::vector<Slot> slots(2);
    for (Slot &slot : slots) {
      const int length = seed % 8 == 7 ? 245 + below(random, 16) : below(random, 24);
      for (int i = 0; i < length; ++i)
        slot.committed.push_back(below(random, vocab));
      decode(slot, slot.committed, 0);
    }
    std::vector<std::vector<std::vector<float>>> logits(2);
    for (int call = 0; call < 1 + below(random, 3); ++call, ++calls) {
      std::vector<Row> rows;
      std::vector<Tokens> earlier;
      std::vector<int> counts;
      for (size_t s = 0; s < 2; ++s) {
        earlier.push_back(slots[s].parents);
        counts.push_back(int(slots[s].rows.size()));
        grow(random, slots[s], 1 + below(random, call ? 6 : 32));
        rowsOf(rows, int(s), slots[s], counts[s]);
      }
      auto lines = runRows(rows, {&slots[0], &slots[1]}, earlier);
      ASSERT_EQ(lines.size(), rows.size());
      for (size_t i = 0; i < rows.size(); ++i)
        logits[size_t(rows[i].slot)].push_back(lines[i]);
    }
    const int pagesBefore = nextPage;
    for (size_t s = 0; s < 2; ++s)
      for (int leaf = 0; leaf < int(slots[s].rows.size()); ++leaf) {
        const Slot &slot = slots[s];
        if (std::count(slot.parents.begin(), slot.parents.end(), slot.len() + leaf))
          continue;
        Slot plain;
        nextPage = pagesBefore; // over those of the path before
        const int depth = slot.positionOf(leaf) + 1 - slot.len();
        const auto lines = decode(plain, slot.pathTo(leaf), depth);
        for (int row = leaf, d = depth - 1; row >= 0; row = slot.parents[size_t(row)] - slot.len(), --d, ++compared)
          ASSERT_EQ(lines[size_t(d)], logits[s][size_t(row)]) << "slot " << s << ", row " << row;
      }
  }
  EXPECT_GT(compared, trees * 20);
  EXPECT_GT(calls, trees);
}

TEST_F(Trees, KeptRowsMoveToTheirPositions) {
  load(0);
  for (order.clear(); int(order.size()) < pages;)
    order.push_back(int(order.size()));
  for (int seed = 0; seed < 10; ++seed) {
    nextPage = 0;
    Random random{unsigned(seed)};
    Slot slot;
    for (int i = 0; i < 9; ++i)
      slot.committed.push_back(below(random, vocab));
    decode(slot, slot.committed, 0);
    grow(random, slot, 16);
    std::vector<Row> rows;
    rowsOf(rows, 0, slot, 0);
    runRows(rows, {&slot}, {{}});
    const int leaf = below(random, 16);
    std::vector<int32_t> places;
    for (int row = leaf; row >= 0; row = slot.parents[size_t(row)] - slot.len())
      places.insert(places.begin(), slot.len() + row);
    PageTable table;
    table.pages = &slot.pages;
    model->move(table, slot.len(), places);
    Slot plain;
    Tokens tokens = slot.pathTo(leaf);
    tokens.push_back(7);
    const auto expected = decode(plain, tokens, 1);
    const int last = int(tokens.size()) - 1;
    takePages(slot, last + 1);
    const std::vector<Row> next = {{0, 7, last, last, last + 1, last - 1, RowWantsLogits, RowNotWanted}};
    Slot kept;
    kept.pages = slot.pages;
    EXPECT_EQ(runRows(next, {&kept}, {{}}), expected) << seed;
  }
}

TEST_F(Trees, ACanvasIsSeenInBothDirections) {
  load(0);
  for (int i = 0; i < pages; ++i)
    order.push_back(i);
  const Tokens tokens = {3, 1, 4, 1, 5, 9, 2, 6};
  auto logits = [&](const Tokens &all, int visible) {
    Slot slot;
    takePages(slot, 8);
    std::vector<Row> rows;
    for (int i = 0; i < 8; ++i)
      rows.push_back({0, all[size_t(i)], i, i, std::max(visible, i + 1), i - 1, RowWantsLogits, RowNotWanted});
    return runRows(rows, {&slot}, {{}});
  };
  Tokens other = tokens;
  other[6] = 7;
  EXPECT_EQ(logits(tokens, 0)[2], logits(other, 0)[2]);
  EXPECT_NE(logits(tokens, 8)[2], logits(other, 8)[2]) << "row 2 sees row 6";
  EXPECT_NE(logits(tokens, 8)[2], logits(tokens, 0)[2]);
}

TEST_F(Trees, ARowsPositionFollowsItsParents) {
  load(0);
  order = {0, 1};
  Slot slot;
  takePages(slot, 8);
  const auto feed = [&](int position, int parent) {
    runRows({{0, 1, 0, 0, 1, -1, 0, RowNotWanted}, {0, 2, position, 1, position + 1, parent, 0, RowNotWanted}}, {&slot},
            {{}});
  };
  EXPECT_NO_THROW(feed(1, 0));
  EXPECT_NO_THROW(feed(0, -1));
  EXPECT_THROW(feed(1, -1), reference::NotExecutable);
  EXPECT_THROW(feed(0, 0), reference::NotExecutable);
}
