//===- Machine.h - the state of a run ---------------------------*- C++ -*-===//
#ifndef MEGALITH_LIB_REFERENCE_MACHINE_H
#define MEGALITH_LIB_REFERENCE_MACHINE_H

#include "Tensor.h"
#include "Values.h"
#include "megalith/Contract/Limits.h"
#include "megalith/Reference/Executor.h"
#include "megalith/Reference/Reduce.h"
#include "megalith/Requests/HostEvents.h"
#include <deque>
#include <memory>
#include <optional>
#include <set>

namespace megalith::reference {

/// What was fed at a place.
struct FedRow {
  int32_t token;
  int32_t parent; ///< place
  int32_t position, visible;
};

struct Running;

/// What is left of a pass while calls are served.
struct PassRoom {
  int64_t rows, promptRows;                              ///< of all calls, and of those that feed prompts
  bool feedsPrompt = false;                              ///< some call took some of the latter
  int64_t readRows = limits::readRows;                   ///< of those that are read
  bool blocked = false;                                  ///< a call waits for pages
  std::vector<std::pair<Running *, int64_t>> pages = {}; ///< that calls get, in the order of serving
  int64_t pagesTaken = 0, beyondTaken = 0;               ///< of these, beyond what was reserved
};

/// Rows [from, to) of the call of a slot, which stand together in a pass.
struct RowsOfSlot {
  int32_t slot;
  int64_t from, to;
};

/// A request's share of one pool. `len` leading tokens are valid; `end` is where
/// the rows that the last call wrote stop.
struct KvShare {
  int64_t len = 0, end = 0;
  int64_t drafts = 0;         ///< rows after `len` that this run of the stage has fed
  int64_t first = 0;          ///< pages below the model's window, which were given back
  std::vector<int32_t> pages; ///< the others
  int64_t sealed = 0;         ///< leading pages that the index has
  bool ownOnly = false;       ///< no more of its pages enter the index: another request's are there
  int64_t found = 0;          ///< positions that the index had when it was last looked at
  int64_t passes = 0;         ///< of the model, that it had rows in
  int64_t reserved = 0;       ///< pages that admission reserved, held ones among them
  std::vector<FedRow> fed;    ///< by place
};

/// What a `reduce` of a call is given, evaluated before the pass.
struct ReducerInput {
  std::optional<int32_t> first, last; ///< rows; below 0: from the end
  std::optional<std::vector<int32_t>> tokens;
  RowReduction with;   ///< all else, but for position, token and edits
  bool edited = false; ///< the request's settings change the rows
  int32_t ahead = 0;
  bool table = false;
  /// By hand: tokens for all rows, or for one row each.
  struct Tokens {
    std::vector<std::vector<int32_t>> rows;
    bool ofEach = false;
    const std::vector<int32_t> &of(int64_t i) const { return rows[ofEach ? i : 0]; }
  };
  std::optional<Tokens> only, without;
  std::vector<int32_t> bias;
  std::vector<float> by;
  /// One for each row that is read, in place of those of `with`.
  std::optional<std::vector<float>> temperatures;
  std::optional<std::vector<int32_t>> noises;
  /// Adds what changes the i-th row that is read by hand.
  void changeByHand(RowEdits &edits, int64_t i) const;
  std::string result = "logits"; ///< of the model: what it reads
  std::string kept, minus, keep; ///< fields whose rows are read, taken away, written
  int64_t keptRows = 0, minusRows = 0, at = 0;

  /// The rows that `first` and `last` give of `rows` that were served: from, to.
  std::pair<int64_t, int64_t> rowsOf(int64_t rows) const;
  /// Those that it reads: no more than there are tokens. Of kept rows it reads those, each with the call's row of the
  /// same number.
  std::pair<int64_t, int64_t> rowsRead(int64_t rows) const;
  /// What it is given for row number `i` of these, which is `row`.
  RowReduction of(int64_t i, const Row &row) const;
};

/// A line for each row that is read, by the result of the model.
using RowsOfResults = std::map<std::string, std::vector<std::span<const float>>>;

/// A call that suspended its stage, until the part after it runs.
struct PendingCall {
  const ir::Operation *op = nullptr; ///< `call` or `issue`; null: none
  int64_t site = -1;
  int pool = -1;
  std::vector<FedRow> feed; ///< from place `begin` on
  int64_t begin = 0;
  int64_t since = 0;    ///< tick
  int64_t ownPass = -1; ///< its site, if that stands in a loop: the pass behind it serves no other
  bool served = false;
  std::vector<ReducerInput> reducers; ///< what they are given
  std::vector<Val> results;           ///< of its reducers
};

struct Running {
  int64_t number = 0;
  int64_t arrived = -1;      ///< tick; -1: not yet
  int64_t arrivedMs = 0;     ///< milliseconds of the clock
  std::vector<int64_t> rank; ///< where it waits, of those in its state
  const Request *input = nullptr;
  std::shared_ptr<const Request> owned; ///< the same, if it came from the host
  std::vector<int32_t> tokens;          ///< prompt and appended
  bool sawEos = false;                  ///< or its format has no text that goes on
  uint16_t formatState = 0;             ///< behind `tokens`, but for an end token
  int state = 0;
  int32_t slot = -1;
  Fault fault = Fault::None;
  int faultState = -1; ///< in which it happened; -1: that was none
  SourceLoc faultLoc;
  FaultNumbers faultNumbers = {};
  SourceLoc leftAt; ///< the last `goto`
  std::vector<Val> fields, inputs;
  /// A row of logits that a field keeps, and the text up to it.
  struct KeptRow {
    std::vector<float> logits;
    std::vector<int32_t> text;
    operator std::span<const float>() const { return logits; }
  };
  std::map<std::string, std::vector<KeptRow>> kept; ///< by field
  std::map<std::string, Val> policyState;           ///< `policy.state`
  std::vector<KvShare> kv;                          ///< by pool
  PendingCall call;
  std::vector<Val> env;   ///< SSA values, by id; empty without slot
  bool stateLost = false; ///< the state was set to none

  // Of the present tick, for the trace.
  int before = 0;       ///< the state that the tick before left
  bool touched = false; ///< it is among Machine::touched
  std::map<std::string, double> gauges;

  /// The request that it waits for, to find what that one feeds.
  struct Feeder {
    int64_t number = -1; ///< -1: none yet; -2: it has looked for one
    int32_t slot = 0;    ///< of that one
    size_t pool = 0;     ///< in which they have more in common than was found
    int64_t pages = 0;   ///< that they have in common there
  } feeder;

  // Of a live run.
  size_t told = 0;         ///< generated tokens that the host knows of
  bool isOver = false;     ///< the host knows of its end
  double admitted = -1;    ///< milliseconds of the host's clock
  bool keepLogits = false; ///< the host wants them
  bool keepPrompt = false; ///< the same of those that predict tokens of the prompt

  RequestResult result;
  /// Logits of the first model's last run that wanted some, by the row's place in the pool.
  std::map<int64_t, std::vector<float>> logits;
  /// Those that predicted the next token; null: there are none.
  const std::vector<float> *nextLogits() const;

  int64_t generated() const { return static_cast<int64_t>(tokens.size() - input->tokens.size()); }
  int64_t budget() const { return input->maxNewTokens - generated(); }
  /// What the answer has to be; null: anything.
  const automata::TokenFormat *format() const { return input->format.tokens.get(); }
  /// Its state behind a text that goes on from `state` with these tokens. None goes on behind an end.
  uint16_t walkFormat(uint16_t state, std::span<const int32_t> more) const;
  bool finished() const { return sawEos || budget() <= 0; }
  int64_t known(int pool) const;
  /// The text on the path of the row that stands or will stand at a place of the call's pool.
  std::vector<int32_t> textOf(int64_t place) const;
};

/// The first page that a row at `position`, or a later one, sees.
int64_t firstPageSeen(const PoolInfo &pool, int64_t position);

/// What the index finds a page by.
struct PageKey {
  int64_t parent; ///< serial number of the page in front; of a first page below 0, and of each `cache` another
  std::vector<int32_t> tokens;
  auto operator<=>(const PageKey &) const = default;
};
struct IndexedPage {
  PageKey key;
  int64_t serial; ///< no two pages ever have the same, so that a page that came to be another is no parent
};

struct Pool {
  std::vector<int32_t> free;              ///< a stack; the top is at the back
  std::map<int32_t, int32_t> holders;     ///< how many requests in slots have a page; of pages that some have
  std::map<PageKey, int32_t> index;       ///< pages
  std::map<int32_t, IndexedPage> indexed; ///< the same, by page
  std::deque<int32_t> cached;             ///< pages of the index that nobody holds, those let go first in front
  int64_t nextSerial = 0;
  int64_t live = 0; ///< of the snapshot
  bool pressure = false;
};

/// The host of a batch: what it wants is known before the run.
std::unique_ptr<Host> scriptedHost(HostScript script, const std::vector<Request> &requests);

class Machine {
public:
  Machine(const ir::Module &module, WeightSource &weights, const std::vector<Request> &inputs, const Options &options);
  RunResult run();

  // What control code uses (Control.cpp).
  /// Moves the rows path[0], path[1], ... of the run to the places after `len`.
  void moveRows(Running &r, int pool, const std::vector<int32_t> &path, SourceLoc loc);
  const Program program;
  const Options &options;
  std::vector<Pool> pools;
  int32_t seated = 0; ///< of the snapshot: requests that hold a slot
  int64_t nowMs = 0;  ///< of the tick: milliseconds of the host's clock
  std::map<std::string, int64_t> metrics;
  std::map<std::string, std::vector<int64_t>> increments; ///< of a live run: how often a metric grew by how much

private:
  /// Makes a request one of the run, which it has not arrived in.
  Running &add(int64_t number, const Request &input);

  // Host.cpp
  bool skipIdle();
  void sampleHost();
  void arrive(Running &r);
  void cancel(int64_t number);
  void endByHost(Running &r, Fault fault);
  void endByDeadlines();
  void dropEnded();
  void tellNews();
  void tellEnd(Running &r, double at);
  void tellStanding(int64_t ticks);

  // Tick.cpp
  void beginTick();
  bool tick();
  void corruptFields();
  void corrupt(Running &r, const Corruption &how);
  void reclaim();
  void snapshot();
  void admit(const PartInfo &part);
  void runSlots(const PartInfo &part);
  int64_t worstPages(const Running &r, const PoolInfo &pool) const;
  int64_t mostHeld(const PoolInfo &pool) const;
  int64_t pagesToReserve(const Running &r, const PoolInfo &pool) const;
  const PoolInfo *tooSmallFor(const Running &r) const;
  bool canReserve(const Running &r, const std::vector<std::vector<int32_t>> &found) const;
  std::optional<FaultNumbers> foreignKv(const Running &r) const;
  void runPart(const PartInfo &part, Running &r);

  // Pages.cpp
  std::vector<int32_t> findPages(const Running &r, int pool) const;
  bool stillFeeds(const Running &r) const;
  bool waitsForFeeder(Running &r, const std::vector<std::vector<int32_t>> &found) const;
  int64_t available(int pool) const;
  int64_t cachedOf(int pool, const std::vector<int32_t> &found) const;
  void graft(Running &r, int pool, const std::vector<int32_t> &found);
  void enterPages(Running &r, int pool, int64_t end);
  void letGo(int pool, int32_t page);
  void freePages(int pool, int64_t count);
  void checkPages() const;

  void moveTo(Running &r, int state);
  void setState(Running &r, int state);
  void touch(Running &r);
  void enqueue(Running &r);
  std::vector<int64_t> rankOf(Running &r);
  /// `loc`: what did it; else the call at which the request waits, else its state.
  void fail(Running &r, Fault fault, SourceLoc loc = {}, const FaultNumbers &numbers = {});
  void fail(Running &r, const FaultSignal &signal) { fail(r, signal.fault, signal.loc, signal.numbers); }
  void breakStandstill();
  void publish();
  TraceTick recordTick();

  // Pass.cpp
  void runEntry(const PartInfo &part);
  /// `loop`: of which calls are served; -1: those outside loops.
  void runPass(int pool, int64_t site);
  std::vector<Running *> waitingFor(int pool, int64_t site) const;
  int64_t unreserved(int pool) const;
  void takeRows(Running &r, int pool, PassRoom &room, std::map<int32_t, int64_t> &taken);
  static bool isOfPrompt(const Running &r);
  bool isRead(const Running &r, int pool) const;
  int64_t readRowsOf(const Running &r, int pool, int64_t rows) const;
  std::vector<RowsOfSlot> orderOfRows(int pool, const std::map<int32_t, int64_t> &taken) const;
  void serve(Running &r);
  std::vector<bool> rowsRead(const Running &r, int64_t rows) const;
  /// What the request's settings change in what a reducer reads of a row.
  static RowEdits editsOf(const Running &r, const ReducerInput &input, int32_t position, std::vector<int32_t> text);
  void reduceRows(Running &r, TracePass &pass, const std::vector<size_t> &numbers, int64_t unread,
                  const RowsOfResults &of, const TracePass *given);
  void putDrafts(Running &r, const TracePass &pass, const std::vector<size_t> &numbers);
  std::vector<int32_t> valuesOf(const RowReduction &with, const Row &row, size_t number, std::span<const float> logits,
                                size_t word, const TracePass *given);
  std::optional<FaultSignal> checkFeed(const Running &r, int pool, int64_t rows) const;
  static std::optional<FaultSignal> readsTooMany(const ReducerInput &input, int64_t rows);
  void keepRows(Running &r, const RowsOfResults &of);
  PassOutput runModel(int pool, const std::vector<Row> &rows, const std::vector<PageTable> &tables);
  void runRows(int pool, const std::map<int32_t, int64_t> &taken, const std::vector<RowsOfSlot> &order);
  const TracePass *replayResults(TracePass &pass, const PassOutput &output);

  /// Of two requests that wait, the one that comes first.
  static bool waitsBefore(const Running *a, const Running *b);
  RequestEnd endOf(const Running &r) const;
  RunResult finish();

  /// In the order of admission: the keys of its `order`, or else the priority, negated; then the number.
  using Rank = std::vector<int64_t>;

  std::map<int64_t, Running> requests; ///< by number; of a live run those that have not ended
  std::vector<Running *> slots;        ///< null: free
  // A tick costs what happens in it, however many requests there are.
  std::vector<std::set<Rank>> queues;               ///< by state: requests without slot in it that have not ended
  int64_t open = 0;                                 ///< requests that have not ended
  std::vector<Running *> touched;                   ///< whose state or gauges may have changed in this tick
  std::vector<std::unique_ptr<TensorModel>> models; ///< by pool
  RunResult out;
  TraceTick current;
  bool progress = false; ///< a call was served, a row ran or a state changed
  bool refused = false;  ///< a request found no pages to reserve in this tick
  int still = 0;         ///< ticks in a row in which calls waited and nothing moved
  bool replaying = false;
  int64_t servedCalls = 0; ///< so far
  int64_t entered = 0;     ///< rounds of loops with calls, and ways on after them, so far

  std::unique_ptr<Host> script; ///< the host of a batch, if it has to be asked
  Host *host = nullptr;         ///< that, or of a live run the caller's; null: all requests are there at the start
  int64_t coming = 0;           ///< requests that have not arrived
  std::set<std::pair<int64_t, int64_t>> deadlines; ///< of requests that have arrived and not ended: when, number

  bool cut = false;             ///< the host ends the run
  std::vector<Running *> ended; ///< of a live run: the host knows of their ends; the next tick drops them
};

/// The keys that an `order` gives a request, as numbers that order as they do. A NaN comes last.
std::vector<int64_t> orderKeys(Machine &machine, Running &r, const ir::Operation &order, int64_t tick);

/// Runs the operations of `region` from `first` on for `r`, up to a `goto` or a
/// call. Returns the state to go to, -1 when the stage was suspended.
int runControl(Machine &machine, Running &r, const ir::Region &region, size_t first, int64_t tick);

} // namespace megalith::reference
#endif
