//===- SharedMemory.h - what stands in a CTA's shared memory --------------===//
//
// Plain structs, and no system header: lib/Plan compiles them, too (SharedMemory.cpp). It reserves the sizes that they
// have, and includes the headers below by their paths there.
//===----------------------------------------------------------------------===//
#pragma once

#ifdef __CUDA_ARCH__
#include "megalith/Abi.h"
#include "megalith/Contract/Row.h"
#include "megalith/Shape.h"
#endif

namespace megalith::device {

using namespace shape;

// --- the pass (Pass.cuh) ---------------------------------------------------------

/// A unit of attention (see AttentionPlan.cuh): a tile of rows and heads over a range of positions.
struct AttentionUnit {
  int unit;       ///< its number; -1: none
  int group;      ///< the tile's rows
  int round, end; ///< of positions: the next one, and the one after the unit's last
  int kvHead, firstHead;
  int firstRow, rows, slot;
  int visible;         ///< positions that the tile's last row sees
  int ownFrom, ownRow; ///< positions from `ownFrom` on are rows of this pass, from `ownRow` on
  int whole;           ///< the tile has no other range
};

/// Of a row's K and V, one after the other in the course of a pass:
union KvOfRow {
  int place;         ///< until findPlaces: page * page_tokens + position in the page
  long long element; ///< from then on: pageAddress of the first layer and head
  unsigned hash;     ///< after a traced pass, in CTA 0: a hash of both, of all layers
};

/// How a pass's attention is dealt to the CTAs, see planRanges.
struct AttentionDeal {
  int groups; ///< of rows that attention takes together
  short groupFirst[kMaxRows + 1];
  int rangeLevel;
  int split;                           ///< some group has several ranges
  int oneRowEach;                      ///< no slot has two rows
  int wideTiles;                       ///< attention is that of WideAttention.cuh
  AttentionUnit firstUnit;             ///< of this CTA
  unsigned short rangesUpto[kMaxRows]; ///< ranges of the groups up to this one
  short firstOfSlot[kMaxRows];         ///< the row's slot begins in this row of the pass
};

/// How a pass multiplies, see planProducts.
struct ProductDeal {
  int blocksAtOnce; ///< of 32 columns of all rows that fit a warp's part of the operands, in passes of several rows and
                    ///< one row tile
  int rowsLog;      ///< of the rows of the first tile, padded to a power of two
  int lent, lentBefore; ///< stages of the ring that this pass lends if it has several rows; and the one before
};

/// The two sets of the workspace, which alternate.
struct WorkspaceSets {
  int current;    ///< this pass writes
  int rowsLast;   ///< rows of the last pass that had any
  int rowsBefore; ///< rows of the pass before, whose words are to be turned back
};

/// Number of passes of many rows so far, this one included; and how many of these want logits.
struct WideCounts {
  unsigned passes, heads;
};

/// What a CTA counts of the passes of a model.
struct PassCounts {
  WorkspaceSets sets;
  WideCounts wide;
};

/// Which model a pass is of. A kernel for one model has none of it.
template <int Models> struct PassModel {
  int model;                 ///< its number in LaunchParams::models
  int guess;                 ///< whose weights the producer brought before it knew that
  int next;                  ///< the guess for the pass after this one
  PassCounts ofPast[Models]; ///< of each model, but for the pass's own
};
template <> struct PassModel<1> {
  static constexpr int model = 0, guess = 0;
};

/// Rows of a wide pass that follow each other in a slot, at the places of their positions. They are fed the request's
/// own tokens. Row `row` of the pass, from `firstRow` on, is at position `position + row - firstRow`, and sees all
/// positions up to its own.
struct PassRun {
  int slot;
  int firstRow, rows; ///< of the pass
  int position;       ///< of the first row
  int firstToken;     ///< what it is fed: an index of LaunchParams::tokens
};
/// A wide pass has these in place of rows.
struct PassRuns {
  PassRun run[kMaxRows];
  /// Where the hashes of the rows' K and V go at the end of a traced pass, so many words apart; null: nowhere. CTA 0.
  unsigned *hashes;
  int hashStride;
  alignas(8) char words[1280]; ///< of the roles (device/wide)
};

/// What every CTA keeps of the pass.
template <int Models> struct PassSharedOf : PassModel<Models> {
  int numRows, tick;
  int runs;        ///< of a wide pass; of any other 0
  int wantLogits;  ///< not 0: the head runs. Of PassFlag kRunsHead, kQueries and kLastLayer
  int done;        ///< no pass follows
  int firstRow;    ///< rows of all passes before
  unsigned number; ///< of the pass
  union {
    Row rows[kMaxRows];
    PassRuns byRuns;
  };
  KvOfRow kv[kMaxRows];
  int logitsOf[kMaxRows]; ///< line of LaunchParams::logits for the row's logits; -1: none
  AttentionDeal attention;
  ProductDeal products;
  WorkspaceSets sets; ///< of the pass's model
  WideCounts wide;    ///< the same
};
using PassShared = PassSharedOf<abi::kModels>;

/// The same where rows of a slot need not be a chain. A row is free when it sees anything but the positions up to its
/// own at the places of the same numbers: then it sees what is on its own path. See Paths.cuh.
template <int Models> struct TreePassOf : PassSharedOf<Models> {
  unsigned someFree; ///< not 0: a row of this pass is free. Of PassFlag kSomeFree and kFresh. Else what follows means
                     ///< nothing
  alignas(2) unsigned char own[kMaxRows]; ///< of a free row, how many rows of this pass are on its path, itself among
                                          ///< them; else 0
};
using TreePass = TreePassOf<abi::kModels>;

/// Draws and queries of the rows of a pass (Reducers.cuh).
template <int Rows, int Results = 1> struct PassDraws {
  int queries;                                   ///< their number
  int draws : 16;                                ///< some row draws at a temperature above 0
  int edited : 16;                               ///< some row draws as settings of its request change it
  int left;                                      ///< the first of the queries that CTA 0 finishes
  int round;                                     ///< number of the round that found their sums
  alignas(16) abi::RowDraw rows[Results * Rows]; ///< of each result of the model
};

// --- the ring (Ring.cuh, Stream.cuh) ----------------------------------------------

/// The producer looks up a unit's page numbers once in a pass, for the first kPageWindows units of attention that have
/// at most kPageWindow pages.
constexpr int kPageWindows = 4, kPageWindow = 128;

struct StreamStep;
/// What a pass of few rows begins with: the steps of its first segment.
struct StreamBegin {
  const StreamStep *steps;
  int count;
  const char *stream;
};

/// What the window warp needs of a pass of many rows. These are copies of members of PassShared. At the end of a kernel
/// that stops, PassShared may be written before the window warp has read it.
struct WidePlan {
  int numRows;
  WideCounts wide;
  int wantLogits;
};

/// A flag of a pass (PassFlag) that its producer has to know: the rows ran in the wide pass in front of this one, up to
/// the last layer. This one begins there.
constexpr unsigned kLastLayer = 1024;

/// Words that consumers and producer of one CTA share.
template <int Models> struct RingSharedOf {
  StreamBegin begin[Models];
  unsigned long long full[kMostStages], empty[kMostStages];
  unsigned long long planned;   ///< completes once per pass, when runHead, numRows and the pass table are valid
  unsigned long long wideBegun, ///< completes once per pass of many rows, when `wide` is valid; and per wide pass
      wideWindows;              ///< completes once per pass of many rows, when the window warp has done its part
  /// Completes once per product of a pass of many rows, if the CTA has units of it: scratch is free for windows.
  unsigned long long opened;
  /// Completes where a pass that runs whole begins, and where it ends, when all warps of the CTA have come there; and
  /// when the kernel leaves.
  unsigned long long wholePass;
  unsigned long long windowFull[kMostWindows], windowEmpty[kMostWindows];
  unsigned runHead;       ///< this pass needs logits: PassShared::wantLogits
  unsigned numRows, lent; ///< rows of this pass (0: it is wide); stages that it lends if it has several rows or many
  unsigned leave;         ///< flag: the resident loop ended or stopped
  unsigned stopped;       ///< flag: GridEdges::stoppedHere
  unsigned passes, widePasses; ///< passes planned so far; how many of these have many rows
  WidePlan wide;
  const unsigned *stopFlag; ///< of the grid: every poll loop looks at it now and then
  unsigned plansRead;       ///< flag: number of passes whose plan the producer no longer needs
  unsigned model, next;     ///< of several models that of this pass, and the guess for the next one
  /// The producer's page numbers. First those of the first units of attention, which come again in each layer. Then
  /// those of one round, for a unit that has no room there.
  int pages[kPageWindows * kPageWindow + 256];
};
using RingShared = RingSharedOf<abi::kModels>;

/// Where a warp stands in the stream, between two phases. It is kept in shared memory, because a thread's local memory
/// is far away when the L1 cache is small.
struct StreamPlace {
  int stage;
  unsigned state;
  int buffer; ///< which of the two buffers of cross-warp sums comes next
  int window; ///< the next window of activations (Windows.cuh); those of odd phases are numbered after the even ones
  // For products of many rows (WideProduct.cuh). Their sums leave no registers for what later code needs.
  int layer;
  int unit, part;
  unsigned use;
  char *sums; ///< where the sums of an eighth go
};

/// State of the grid barrier in one CTA. Thread 0 writes it. Sync.cuh has what is done with it.
struct GridWords {
  const abi::LaunchParams *params;
  unsigned *stoppedHere; ///< flag in shared memory: 1 once this CTA knows that the kernel stops
  unsigned arrivals = 0; ///< value of kGridArrivals when the present epoch is complete
  int tick = 0;
};

// --- control's state (Control.cuh, Pages.cuh) --------------------------------------

/// `Words`, or nothing of them.
template <bool There, class Words> struct PerhapsOf {
  using Type = Words;
};
template <class Words> struct PerhapsOf<false, Words> {
  struct Type {};
};
template <bool There, class Words> using Perhaps = typename PerhapsOf<There, Words>::Type;

/// Numbers of the run and of the tick.
template <int Models> struct ControlNumbersOf {
  PassShared *pass;               ///< the pass, in CTA 0
  long long passesDone, rowsDone; ///< what Stats counts
  int tick;
  int firstTick;    ///< of the launch
  int done;         ///< leave the resident loop
  int openRequests; ///< requests that are not in a terminal state
  int unseated;     ///< open requests without a slot
  int freeSlots;
  int slotsHeld;       ///< snapshot of the tick: requests that hold a slot
  int changes;         ///< changes of state in this tick
  int idle;            ///< ticks in a row in which nothing moved
  int still;           ///< ticks in a row in which calls waited and nothing moved
  int ranNoPass;       ///< the last tick had no rows, so no other CTA took part
  int refused;         ///< a request found no pages to reserve in this tick
  int waiting, served; ///< calls that waited when the pass was formed, and calls that it serves. Of several passes:
                       ///< served in this tick
  int numRows, wantLogits;
  int rowsOfTick;       ///< of several passes
  int after;            ///< which pass of the tick's list was the last, of several; they are counted from 1
  int lastModel;        ///< the model of the last pass
  int servedOfRound;    ///< of a loop: calls so far, and rounds that begin where loops nest
  int follower[Models]; ///< by model: of which model the pass after its last one was
  int rowQueries;       ///< of the pass that is being formed
};

/// Tables of the slots.
template <int Slots> struct SlotTables {
  int request[Slots]; ///< -1: free
  int callChunk[Slots];
  unsigned callFlags[Slots];        ///< RowFlag bits of its rows, kOfPrompt and kLastRow
  int badRow[Slots];                ///< first row of the call that must not be fed
  int badCode[Slots];               ///< the fault of that row
  int newest[Slots];                ///< the request's last token
  int eos[Slots][eosAtHand(Slots)]; ///< the request's first EOS tokens
  unsigned gaugesSet[Slots];

  // the pass that is being formed
  int wanted[Slots]; ///< rows that the call asks for; -1: the slot does not wait
  int taken[Slots];  ///< rows that it gets; -1: it is not served
  int since[Slots];  ///< tick; then, of a wide piece, the first row of the slot's run
  int priority[Slots], passes[Slots], kvLen[Slots];
  int order[Slots]; ///< waiting slots, longest waiting first; then, of a wide piece, the number of a slot's run
  int rowBegin[Slots];
  int newPages[Slots], pageTop[Slots];
};
/// Where a tick's list has several passes.
template <int Slots> struct CallModels {
  int callModel[Slots]; ///< the model, and of a call in a loop its site: whose pass the slot's call waits for
};
/// Where calls ask for more than the best token of each row: those that do not, as `sample` at temperature 0. Nobody
/// needs to be told, and what they get are the results of the rows.
template <int Slots> struct PlainCalls {
  int plain[Slots]; ///< 0: another call. Else one more than the words that it has for a row in a trace: those of
                    ///< CallQuery
  int plainFirst[Slots], plainLast[Slots]; ///< rows that it reads, as in CallQuery
};
/// Where passes may have more than kMaxRows rows. Such a pass runs in pieces: first the rows that are not read, then
/// the others.
template <int Slots> struct PassPieces {
  int unread;             ///< rows that are not read, of a pass that runs in pieces; of another pass 0
  int readLeft;           ///< rows of the piece that is to follow these; 0: none
  unsigned flags;         ///< of the last piece
  int from, to;           ///< unread rows of this piece
  int firstUnread[Slots]; ///< number of the slot's first row among these; -1: all rows of its call are read
};
/// Of kernels in which rows may be a tree, or a pool has an index.
struct MovedRows {
  int moved; ///< since the last pass, kept rows moved, or a request took found pages
  int fresh; ///< the pass has kFresh
};

/// What control keeps of a pool.
template <int Slots> struct PoolTables {
  int freePages;       ///< on the stack
  int live, pressure;  ///< snapshot of the tick: pages that requests hold; whether that is above the watermark
  int unreserved;      ///< free pages that no request in a slot has reserved
  int held[Slots];     ///< pages of each slot, those that it gave back among them
  int lastPage[Slots]; ///< the last page of each slot: in shared memory, where the table is not
  int callStart[Slots][tokensAtHand(Slots)]; ///< the first of the slot's fed tokens, see fedToken
  int fedFrom[Slots];                        ///< place of the first of them
  int known[Slots];                          ///< leading positions of the KV that were fed the request's own tokens
};
/// Of a pool that reserves pages.
template <int Slots> struct Reservations {
  int reserved[Slots]; ///< pages that admission reserved, those that are held included
};
/// Where all layers have a window.
template <int Slots> struct FirstPages {
  int firstPage[Slots]; ///< pages in front of it were given back
};
/// Of a pool with an index.
template <int Slots> struct IndexTables {
  long long serials;           ///< that pages have had
  int cached, cachedSeen;      ///< pages of the index that no slot holds; of the snapshot of the tick
  int oldest, newest;          ///< of these, 1 + a page: those let go first and last; 0: there are none
  int foundPages, foundCached; ///< of the request that admission looks at: pages, and those of them that are cached
  int sealed[Slots];           ///< leading pages that the index has
  int ownOnly[Slots];          ///< no more of the slot's pages enter: those of another request are there
};
/// Where drafts of a run of a stage stand one after the other.
template <int Slots> struct RunRows {
  int runRows[Slots]; ///< rows of drafts after `len` that this run of the stage has fed
};
/// Where rows may be a tree.
template <int Slots> struct FreeRows {
  int someFree[Slots]; ///< a row of the slot's call is free, see TreePass
};

} // namespace megalith::device
