//===- Abi.h - what the runtime and the emitted kernel share --------------===//
//
// Plain structs, included by runtime/ (host C++) and by both units of a kernel
// (no system header). Change kAbiVersion with any change here.
//===----------------------------------------------------------------------===//
#pragma once

#include "megalith/Contract/Limits.h"

namespace megalith::abi {

constexpr int kAbiVersion = 26;

/// Models of this kernel. The text of a unit for several says so in front of what it includes.
#ifdef MEGALITH_MODELS
constexpr int kModels = MEGALITH_MODELS;
#else
constexpr int kModels = 1;
#endif
static_assert(kModels >= 1 && kModels <= limits::models);

/// Head of every request descriptor. What it has of each pool follows (RequestOf), then the pipeline's own fields, in
/// the emitted `struct Request : RequestOf<...>`, and what it brings; the manifest gives the offsets.
struct RequestHeader {
  int state;    ///< index of the state in the manifest's list
  int fault;    ///< 0 = none, see kFaultAtCall
  int slot;     ///< -1: none
  int priority; ///< of one that faulted a number, see FaultNumbers
  int promptLen;
  int numTokens; ///< prompt and generated
  int generated;
  int maxNewTokens;
  signed char eosSeen;      ///< 1: an EOS was appended, or the last token of a stop sequence
  signed char served;       ///< 1 between the pass and its after part
  signed char stateBefore;  ///< at the start of the tick; the device sets it
  signed char stopCount;    ///< stop sequences. They come after the EOS tokens, each after the number of its tokens
  int eosBegin, eosCount;   ///< range of LaunchParams::eos
  int waitingSite;          ///< call site it waits at; -1: none
  int waitingSince;         ///< tick of the issue
  int callCount;            ///< tokens of the waiting call (in callTokens of the slot)
  int passes;               ///< passes it had rows in
  int rows;                 ///< rows it fed
  int number;               ///< in the order of arrival
  unsigned firstLine : 31;  ///< of a live session: 1 + its first line of LaunchParams::logits; 0: it has none
  unsigned promptLines : 1; ///< then: the lines in front of that one are those of the prompt's rows
  long long timeBegin;      ///< offset of its records in LaunchParams::times
  long long tokenBegin;     ///< offset of its tokens in LaunchParams::tokens
};

/// A request's part of a pool.
struct KvOfRequest {
  int len; ///< leading tokens whose KV is valid
  int end; ///< len, or beyond it while drafts are in the pool
};
/// Of several models a request counts the passes of each: those that waited as long are served by it.
template <int Models> struct RequestOf : RequestHeader {
  KvOfRequest kv[Models];
  int passesOf[(Models + 1) / 2 * 2]; ///< passes of each model that it had rows in. An even number of words
};
template <> struct RequestOf<1> : RequestHeader {
  KvOfRequest kv[1];
};

/// The same of an index, where some pool has one. It follows RequestOf.
template <int Models> struct IndexedRequest {
  long long cache;   ///< Request::cache: it finds pages of the same one only
  int feeder;        ///< 1 + the number of the request that it waits for; 0: of none yet; -1: it has looked for one
  int feederSlot;    ///< of that one
  int feederPool;    ///< in which they have more in common than was found
  int awaited;       ///< pages that they have in common there
  int foundFirst;    ///< positions of the first pool that it took with its first slot
  int found[Models]; ///< positions: as it was last looked at, or in a slot those that it took with it
};
constexpr long long indexedRequestBytes(long long models) {
  return ((long long)sizeof(IndexedRequest<1>) + 4 * (models - 1) + 7) / 8 * 8;
}
static_assert(indexedRequestBytes(2) == sizeof(IndexedRequest<2>) &&
              indexedRequestBytes(3) == sizeof(IndexedRequest<3>));

/// A sequence that a request brings: words of LaunchParams::inputs.
struct InputRange {
  long long begin;
  int length;
  int unused;
};

// RequestHeader::fault is the code of Contract/Faults.def, the state in which it happened, and a place. The place is
// the line of the pipeline's file whose code ran; 0 means that it is not known. With kFaultAtCall the place is
// the number of the call site at which the request waited; of KV_TOO_LARGE that of the pool.
constexpr int kFaultAtCall = 1 << 6; ///< codes are below it
constexpr int kFaultStateShift = 7;
constexpr int kFaultNoState = (1 << 7) - 1; ///< the state was none
constexpr int kFaultPlaceShift = 14;
constexpr int kFaultMaxLine = (1 << 18) - 1;
/// What Contract/Faults.def calls the numbers of a fault. They stand in members that a request which has ended does not
/// need: waitingSince, callCount, priority.
struct FaultNumbers {
  int words[3];
};

/// One per slot.
struct Slot {
  int request; ///< -1: free
  int heldPages;
};

/// First error that stopped the kernel; written once (watchdog).
struct StopRecord {
  int code; ///< 0 = none, 1 = no progress
  int cta;
  int edge; ///< index of the edge in the manifest
  int tick;
};

constexpr long long kRenews = 2;
struct Stats {
  long long ticks, passes, rows;
  long long traceWords;     ///< words written to the trace ring
  long long traceDropped;   ///< records that did not fit
  long long unfinished;     ///< the next launch goes on. kRenews: with `flagged` and `sync` as before the first one
  unsigned long long begin; ///< of the run: nanoseconds, when control started it
};

/// When something happened to a request. Of each request the first record is its admission, the first time that it took
/// a slot. Record 1 + i is the append that added generated token i as its first one. Records between are zeros.
struct alignas(16) TimeRecord {
  unsigned low, high; ///< nanoseconds of a clock that all CTAs share. Four words of one kind: it takes one store
  int tick;
  int tokens; ///< of the append; 1 of an admission. 0: nothing happened
};

/// What a kernel keeps between two launches of a run, in device memory. Control's state follows: the bytes that the
/// plan gives it in shared memory. Each CTA counts the passes; the counts are the same in all.
struct Kept {
  int valid; ///< 0: the run begins
  unsigned passNumber;
  unsigned arrivals;    ///< of all CTAs at the ends of passes
  unsigned renewPasses; ///< a launch ends after so many, so that no number that words have as their tag comes again;
                        ///< 0: never
  struct OfModel {
    unsigned widePasses, wideHeads;       ///< WideCounts
    int currentSet, rowsLast, rowsBefore; ///< WorkspaceSets
  } models[limits::models];
};

/// Test hook: at tick `tick`, 4-byte word `offset` of request `request` becomes `value`.
struct Corruption {
  int tick, request, offset, value;
};

/// For measurements: what stood when a tick began. One more comes after the last tick.
struct TickRecord {
  unsigned long long begin; ///< nanoseconds of a clock that all CTAs share
  int open;                 ///< requests that have not ended
  int prompts;              ///< of these, whose prompt is not fed up to its last token
  int generated;            ///< tokens so far of the requests that hold a slot
  int kvTokens;             ///< valid positions of their K and V
  int rows;                 ///< of the tick's pass
};

/// How a request wants tokens to be drawn.
struct alignas(16) Settings {
  float temperature, topP, minP;
  int topK;
  unsigned key[2]; ///< of its random words (Sampling.h)
  int edits;       ///< what changes its rows of logits: place of an Edits; kNone: nothing does
  int byText;      ///< kByText, kHasFormat
  int minNewTokens;
  int unused[3];
};
enum ByText : int {
  kByText = 1,   ///< some of it goes by the row's text
  kHasFormat = 2 ///< a format among it
};

// What changes rows of logits (docs/language.md, "Settings that follow a row's own text"). The host makes it before the
// kernel hears of the request, in LaunchParams::edits, and never changes it while a request has it. A place there is a
// number of 16 bytes from the beginning, other places are bytes from the beginning of their struct. Bits of tokens:
// that of token t is bit t % 32 of word t / 32. A token without a bit is as one whose bit is 0.
constexpr int kNone = -1;

struct alignas(16) Edits {
  float repetition, presence, frequency;
  int bits;    ///< words of each set of tokens
  int allowed; ///< a set, where no other token may come; kNone
  int banned;  ///< a set; kNone
  int biased;  ///< a set of tokens that a number is added to; kNone
  int biases;  ///< their tokens, ascending, then the numbers
  int biasCount;
  int ends; ///< tokens that end an answer: those of `eos`, then stop sequences of one token
  int endCount, eosCount;
  int format; ///< place of a Format; kNone
  int unused[3];
};
/// An automaton over bytes (megalith/Automata/Automaton.h), and which tokens its states allow. States are numbered
/// anew: those in which a text is complete come behind the others, and of these last those behind which nothing can
/// follow.
struct alignas(16) Format {
  int start, complete, final; ///< the start; the first state of each kind
  int bits;                   ///< words of a mask
  int next;                   ///< [states][256] u16: a state, or kDeadState
  int maskOf;                 ///< [states] ints: the number of a mask
  int masks;                  ///< [masks][bits]
  int tokens;                 ///< place of a TokenBytes
  int likely;                 ///< [states] ints: the token that a model says there most likely; -1: it has a choice
  int unused[3];
};
constexpr int kDeadState = 0xffff;
/// What tokens spell in the middle of a text. TokenSpelling of each token of the vocabulary follow.
struct alignas(16) TokenBytes {
  int vocabulary;
  int unused[3];
};
struct alignas(16) TokenSpelling {
  int length;        ///< bytes; 0: the token is part of no text
  unsigned words[3]; ///< these; of more than twelve the first word says where they stand: bytes from the TokenBytes, a
                     ///< multiple of 4
};

/// What control knows of the text of the request in a slot, in LaunchParams::texts: how many of its tokens the set of
/// `seen` ones and the numbers of those in the answer have, and in which state of its format they leave it. Then what
/// it takes to go on, so that one load brings it. The set follows, then the numbers.
struct alignas(16) SlotText {
  int counted; ///< -1: nothing is there yet
  int state;
  int penalties; ///< 1: tokens are counted
  int eosCount;
  long long ends;            ///< tokens of `eos`; offsets are bytes from LaunchParams::edits
  long long format;          ///< a Format; kNoFormat
  long long spellings;       ///< of its tokens
  int vocabulary;            ///< tokens that have some
  int complete, final, next; ///< as Format has them
  int unused[2];
};
constexpr long long kNoFormat = -1;
/// The text in front of the token that a row gives, of a pass, or one that a request keeps. At the beginning of
/// LaunchParams::texts, where other offsets of bytes count from.
struct alignas(16) RowText {
  long long seen, counts; ///< of the request's tokens
  long long path;         ///< tokens behind these, in LaunchParams::callTokens or LaunchParams::texts: bytes
  long long tokens;       ///< of the request: their place in LaunchParams::tokens
  long long mask;         ///< bytes from LaunchParams::edits. kNoMask: any token may come; kNoTokens: none may
  int pathTokens;
  int flags;  ///< kGathered, kMayEnd
  int prefix; ///< -1: in front of the path stand all of the request's tokens; else the first so many
  int promptLen;
  int numTokens; ///< of the request, when this was written
  int unused;
};
constexpr long long kNoMask = -1, kNoTokens = -2;
enum RowTextFlag : int {
  kGathered = 1, ///< the path stands in LaunchParams::texts
  kMayEnd = 2    ///< under a mask: tokens of `eos` may come
};
/// Bytes of LaunchParams::texts: RowTexts of `rows` rows, those of a pass first, then those that requests keep; a path
/// of `path` tokens for each; and what slots have of a vocabulary.
constexpr long long textWords(long long vocab) { return (vocab + 127) / 128 * 4; }
constexpr long long slotTextBytes(long long vocab) {
  return (long long)sizeof(SlotText) + 4 * textWords(vocab) + (vocab + 3) / 4 * 16;
}
constexpr long long rowPathBytes(long long path) { return (path + 3) / 4 * 16; }
constexpr long long slotTextsBegin(long long rows, long long path) {
  return rows * ((long long)sizeof(RowText) + rowPathBytes(path));
}
constexpr long long textBytes(long long rows, long long path, long long slots, long long vocab) {
  return slotTextsBegin(rows, path) + slots * slotTextBytes(vocab);
}

/// A row's token that is drawn from all tokens while its logits are made: the one with the greatest z / T + gumbel.
struct alignas(16) RowDraw {
  float temperature; ///< 0: the token of the greatest logit
  int at;            ///< its word in LaunchParams::reduced; -1: it has none
  unsigned key[2];   ///< of the random words, with the two below
  int position;
  unsigned purpose;
  int kept;    ///< 0, or queries read the row's logits, or a field keeps them: 2 n + 1, where they stand in line n of
               ///< LaunchParams::selection. Lines below 0 are those that requests keep
  int guesses; ///< 1: it is drawn for a query of the row. It is what the query wants if it belongs to the query's S.
               ///< 2: it is drawn from the row as its RowEdit changes it, beyond all queries
};
/// Of such a draw.
struct alignas(16) RowEdit {
  int edits; ///< place of an Edits
  int text;  ///< the RowText of these; kNone: the text is not known
  int early; ///< 1: tokens that end an answer may not come
  int hand;  ///< place of a RowHand; kNone
};
/// What a stage changes of a row by hand. Places are bytes from LaunchParams::queries, where a place of one is a number
/// of 16 bytes. Lists are of tokens.
struct alignas(16) RowHand {
  int only, onlyCount;       ///< tokens that may come; `only` kNone: all
  int without, withoutCount; ///< that may not
  int bias, by, biasCount;   ///< tokens, and f32 numbers that are added to their logits, one after the other
  int unused;
};

/// A logits query: what is read of the logits of a row beyond that.
struct alignas(16) RowQuery {
  int row; ///< of the pass; of result number r of the model r * rows of a pass more. Of a kept row -1 - its best token
  int reducer; ///< ReducerKind
  int at;      ///< its first word in LaunchParams::reduced
  int count;   ///< tokens, or their probabilities
  float temperature, topP, minP;
  int topK;
  unsigned key[2];
  int position;
  unsigned purpose;
  int token; ///< whose probability is asked for
  int part;  ///< of top_k: 0 the tokens, 1 their probabilities. Of a draw 1: the next query is of the row that is taken
             ///< away
  int guessed; ///< 1: the row's draw is one for this query
  int line;    ///< of LaunchParams::selection, where its logits stand; below 0: of rows that a request keeps
  int edits;   ///< place of the Edits that change its row; kNone
  int text;    ///< the RowText of these; kNone: the text is not known
  int early;   ///< 1: tokens that end an answer may not come
  int hand;    ///< place of a RowHand; kNone
};

/// In LaunchParams::reduced: there was a NaN in a row. In an edited row kNanOfEdited says so; ~0u is no token there.
constexpr unsigned kNanOfEdited = ~1u;

/// At the beginning of LaunchParams::queries. The RowDraws of all rows of a pass follow, for each result of a model
/// that calls ask for, then their RowEdits, then the RowQueries.
struct alignas(16) QueryHeader {
  int count; ///< queries of this pass
  int unused[3];
};
constexpr int kCallQueryBytes = 80;
constexpr int kHandRecordWords = 16;
/// Bytes of LaunchParams::queries: those of a pass; then control's of each slot, a count and CallQueries, with the
/// tokens whose probability they ask for. `results`: of a model, that calls may ask for. `hands`: words of a slot that
/// say what stages give by hand. Where there are any, each row and query has a RowHand, and each slot these words.
constexpr long long queryBytes(long long rows, long long slots, long long queries, long long results, long long hands) {
  const long long bytes = sizeof(QueryHeader) + rows * results * (sizeof(RowDraw) + sizeof(RowEdit)) +
                          rows * queries * sizeof(RowQuery) +
                          slots * (16 + queries * (kCallQueryBytes + rows * sizeof(int)));
  return hands == 0 ? bytes : (bytes + 15) / 16 * 16 + rows * queries * (long long)sizeof(RowHand) + slots * hands * 4;
}

/// What the host wants: request `number`, of entry `entry` of the table, arrives, or is taken back (`cancels`). Not
/// before this tick, nor before so many milliseconds of the run. In a live session both are 0.
struct alignas(16) Order {
  int tick, ms;
  int entry, number;
  int cancels;
  int deadlineMs; ///< after its arrival; 0: never
  int unused[2];
};
/// When a request arrived, and what the host of a live session knows of it.
struct Arrival {
  int tick, ms;
  int deadlineMs;        ///< after which it ends; 0: never
  int toldState;         ///< -1: nothing was told
  int toldGenerated;     ///< tokens
  int toldFed;           ///< the most tokens that the first model had K and V of
  unsigned long long at; ///< nanoseconds of a clock that all CTAs share
};
/// A tick takes so many orders at most, and ends so many requests whose time is over.
constexpr int kMostHostEvents = 64;
/// Where things stand in the memory of the rings of a live session: bytes from HostSide::rings.
struct RingPlaces {
  int orders, news;                     ///< each ring
  int ordersMask, newsMask;             ///< their places, less one
  int state;                            ///< LiveState
  int lineMarks;                        ///< of each line of LaunchParams::logits a word
  int mailboxes, mailboxBytes;          ///< the first request's, and how many bytes they are apart
  int endWords, inputWords, tokenWords; ///< of a mailbox, and of the arenas of LaunchParams
};
/// The host's side of a run. The Arrival of each entry of the table follows, then clockTicks numbers. The host of a
/// batch has put in all its orders before the launch; they come after these, `orders` bytes from here. That of a live
/// session goes on: see HostRings.
struct alignas(16) HostSide : RingPlaces {
  char *rings;            ///< HostRings, in memory of the host; null of a batch
  unsigned ordersHeard;   ///< so many are there, as far as control knows
  unsigned ordersTaken;   ///< so far
  int coming;             ///< requests that have not arrived: their state is -1. Of a live session 1 while some may
  int initialState;       ///< of those that arrive
  int nowMs;              ///< milliseconds since the run began, of the tick
  int realClock;          ///< 1: they pass; 0: a tick is one
  int clockTicks;         ///< of a replay: the milliseconds of so many ticks are given, one after the other
  int samples;            ///< ticks so far, of such a one
  long long nextDeadline; ///< the first of those that have arrived
  int taken;              ///< orders of the tick
  int stops;              ///< HostRings::stops, as the tick saw it
  unsigned takenEvents[kMostHostEvents]; ///< the number of the request, with kTraceCancels if it was taken back

  // Of a live session.
  unsigned newsPut;           ///< so far
  unsigned newsRead;          ///< as control last saw it
  int newsPending;            ///< 1: the ring had no room for all news
  int rests;                  ///< 1: nothing was to do for idleNs; the launch ends, and another one goes on
  unsigned launches;          ///< HostRings::launchesEnded
  long long idleNs;           ///< below 0: it never rests
  unsigned long long stateAt; ///< when LiveState was written
};
constexpr long long kNoDeadline = 0x7fffffffffffffff;

// A live session: requests come while the kernel runs. What the host and control tell each other stands in memory of
// the host that both see: HostRings; the orders; the news; LiveState; the mailboxes, one for each entry of the request
// table. A mailbox is the host's until its order is put into the ring, then control's, and the host's again when it has
// read the news of the request's end. It has:
//
//   descriptor         of the request, in a multiple of 16 bytes. Control writes it again at the end
//   Settings
//   endWords x int     its part of LaunchParams::eos
//   inputWords x int   of LaunchParams::inputs
//   tokenWords x int   of LaunchParams::tokens: the prompt; control adds what it tells of
//
// After the mailboxes stand the lines of LaunchParams::logits, if the session has any. A request that asks for
// logprobs has as many as it may generate tokens, and where rows may be a tree those of its drafts after them. If it
// asks for those of its prompt, lines for all tokens of the prompt but the first stand in front of them. The
// word of a line in the marks is 1 where a row that predicted this token has written it. Marks are control's while the
// request goes on. Neither changes after the news of the token; of the prompt's after the first news that the first
// model has K and V of all its tokens but the last.
//
// Word counts are multiples of 4. The descriptor's ranges are those of the arenas of LaunchParams, where entry number i
// has the words from i * endWords on, and so on.

/// Counters of the two rings. They only grow, beyond 2^32 from 0 on. Release, acquire, system scope. The ring of orders
/// has room for all that can come before the host hears that they were taken, by news of their requests.
struct HostRings {
  // The host's.
  unsigned ordersPut;
  unsigned newsRead;
  unsigned stops; ///< 0; kStopsDrained: when all have ended; kStopsNow
  unsigned hostUnused[29];
  // Control's.
  unsigned newsPut;
  unsigned launchesEnded; ///< or about to: control takes no more orders in them
  unsigned controlUnused[30];
};
constexpr unsigned kStopsDrained = 1, kStopsNow = 2;
/// What is new of the request in an entry of the table.
struct alignas(16) News {
  int entry;
  int generated; ///< tokens so far; they stand in the mailbox
  int state;
  int ended;          ///< 1: the mailbox has its descriptor
  unsigned low, high; ///< nanoseconds of a clock that all CTAs share
  int fed;            ///< tokens that the first model has K and V of
  int found;          ///< IndexedRequest::foundFirst
};
/// For those who look on, written now and then, relaxed. Two words per number of 64 bits, the low one first. After it
/// per model the pages that no slot holds, and how many of them are cached; per slot kLiveSlotWords: entry + 1 (0: it
/// is free), state, prompt, generated, KV of the first model; per metric two words; per metric those of its increments.
struct LiveState {
  unsigned ticks, written; ///< `written`: 1; 0: nothing was
  unsigned passes[2], rows[2];
};
constexpr int kLiveSlotWords = 5;

/// Words of LaunchParams::sync.
constexpr int kSyncWords = 160;
/// Of these the one that is not 0 when the kernel shall stop; the host may set it, too.
constexpr int kStopWord = 32;

/// Bytes of the keys, or of the values, of one head in a page (Pool.cuh).
constexpr long long kvHeadBytes(long long pageTokens, long long dim, bool e4m3) {
  return e4m3 ? pageTokens * dim + (2 * pageTokens + 15) / 16 * 16 : 2 * pageTokens * dim;
}

/// A page of a pool with an index. Zeros: no slot holds it, and the index does not have it. Other pages are told by
/// 1 + their number; 0 is none.
struct alignas(16) IndexedPage {
  long long serial;        ///< from 1 on; no two pages ever have the same. 0: the index does not have it
  long long parent;        ///< serial number of the page in front; of a first page -1 - cache
  unsigned long long hash; ///< of all tokens up to its end
  int next;                ///< of the pages whose hashes have the same head
  int holders;             ///< slots
  int older, newer;        ///< in the list of cached pages
};
/// ModelParams::index has IndexedPages, then heads of lists of pages of one hash, then the tokens of the pages.
constexpr int indexBuckets(long long pages) {
  int buckets = 1;
  while (buckets < pages && buckets < 1 << 30)
    buckets *= 2;
  return buckets;
}
constexpr long long indexBytes(long long pages, long long pageTokens) {
  return pages * (long long)sizeof(IndexedPage) + 4 * (indexBuckets(pages) + pages * pageTokens);
}

/// One model: its weights, its pool of K and V, and memory for its activations. vCache and workspace stand at a
/// multiple of 16: the kernel loads both at once.
struct alignas(16) ModelParams {
  const char *stream;         ///< packed weights
  const void *const *weights; ///< by manifest index: bf16 weights of which the kernel reads single rows, and null for
                              ///< all others, which are in `stream` alone
  const float *ropeCosSin;    ///< [tables][maxPositions][headDim / 2][2], rounded to bf16
  int maxPositions;
  // pool
  int pageTableStride;
  int *pageTable;        ///< [slots][pageTableStride]
  int *freeList;         ///< stack of free page ids; all of them before the first tick
  char *index;           ///< IndexedPages and what follows them; null where the pool has none
  char *kCache, *vCache; ///< [layers][pages][kvHeads][pageTokens][headDim] (Pool.cuh)
  // pass
  char *workspace; ///< activations; offsets are constants of the source
};

/// What `megalith_pack` finds of a tensor of the checkpoint: elements `begin` to `end`, row-major. Both are 0 when
/// there is nothing of it.
struct RawTensor {
  const void *data; ///< element `begin`, aligned to its size
  long long begin, end;
  int type;
};
/// RawTensor::type. Those of codes say how these lie in the checkpoint (megalith/Checkpoint/Quantisation.h): elements
/// are bytes, or words of several codes.
enum RawType : int {
  kRawBf16,
  kRawF16,
  kRawF32,
  kRawE8m0,        ///< of scales: 2^(byte - 127)
  kRawCodes,       ///< [rows, columns], a byte each
  kRawCodeRows,    ///< words along columns, [rows, words]; zero points along rows, [words, blocks]
  kRawCodeAwq,     ///< words along rows, [columns, words], in AWQ's order; zero points alike
  kRawCodeGptq,    ///< words along columns, [words, rows]; zero points along rows, [blocks, words]
  kRawCodeGptqLess ///< the same; each word of zero points has 1 less in each code
};
constexpr bool isRawCodes(int type) { return type >= kRawCodes; }
/// Bytes of an element.
constexpr int rawBytes(int type) {
  return type == kRawF32 || type > kRawCodes ? 4 : type == kRawE8m0 || type == kRawCodes ? 1 : 2;
}

constexpr int kIncrements = 32;

/// The kernel's one parameter. Its models stand last: the host has room for as many as there may be (HostParams), and
/// a kernel takes the first bytes of that.
template <int Models> struct LaunchParamsOf {
  int numRequests;
  int increments; ///< 0, or of a live session: so many metrics there are, and after them stand [metrics][kIncrements]
                  ///< numbers: how often something added 0, 1, ... to one; the last of them: that or more
  // requests
  char *requests;    ///< RequestHeader and fields, manifest's requestBytes apart
  int *tokens;       ///< arena of all requests' tokens
  const int *inputs; ///< arena of the sequences that requests bring
  const int *eos;
  Slot *slots;
  int *callTokens; ///< [slots][callTokens]: what the calls of a stage feed
  HostSide *host;  ///< null: all requests are there at the start, and stay
  // reducers beside argmax; null where the pipeline has none
  const Settings *settings; ///< [requests]
  const char *edits;        ///< what settings of requests change of their rows
  char *texts;              ///< and of the requests' texts what that takes; null where nothing has edits
  char *queries;            ///< what is asked of the rows of a pass; the layout stands at queryBytes
  unsigned *reduced;        ///< [rows of a pass][1 + words]: how many words the row's call has, and what they gave
  char *selection; ///< [results][rows of a pass] of logits, then sums of selection rounds. In front of it are kept
                   ///< rows of logits, the last one first
  int *scratch;    ///< [kConsumerWarps][scratchWords]: what a stage keeps meanwhile; may be null
  // grid
  char *flagged;  ///< words that carry a tick or a pass, those of Pass.cuh first; zeros before a launch
  unsigned *sync; ///< counters of the grid, stop flag, see Sync.cuh; zeroed before launch
  StopRecord *stop;
  // results and observation
  long long *metrics;
  Stats *stats;
  unsigned *trace;         ///< null: no trace
  long long traceCapacity; ///< words
  float *logits;           ///< null, or [requests][logitsRows][vocab] of the predicted positions;
                           ///< with `replay` [logitsRows][vocab] of the rows in the order they were fed. Where rows
                           ///< may be a tree, [slots][draftRows][vocab] of drafts follow. Of a live session the
                           ///< lines of requests that asked for them, see there
  long long logitsRows;    ///< of a live session 0
  TimeRecord *times;       ///< one and max_new_tokens of each request
  int kvHash;              ///< 1: the trace carries a hash of each row's K and V
  int oracleStride;        ///< of `oracle`. Words stand in pairs: the parameters stand in shared memory
  // test hooks and limits
  const int *replay; ///< null, or the result of each row in the order they are fed, of
                     ///< another run: taken in place of the own one
  long long replayRows;
  const int *oracle; ///< null, or [requests][oracleStride]: drafts to propose
  const Corruption *corruptions;
  int numCorruptions;
  int maxTicks;         ///< 0 = no limit
  int ticksPerLaunch;   ///< 0 = the launch runs until all requests have ended
  unsigned delaySeed;   ///< 0, or random delays before waits
  Kept *kept;           ///< null, or what goes from launch to launch
  long long watchdogNs; ///< 0 = off
  // measurements
  int kvInPlace;              ///< K and V of the first so many positions of each prompt (but never of its
                              ///< last token) are in the pool already
  int tickCapacity;           ///< of `ticks`
  TickRecord *ticks;          ///< null, or [tickCapacity]
  unsigned long long *stamps; ///< null, or [stampTicks][CTAs][stampWords] of a kernel with `--plan stamps=1`,
                              ///< see Stamps.cuh; ticks turn in it
  int stampTicks, stampWords;
  ModelParams models[Models];
};
using LaunchParams = LaunchParamsOf<kModels>;
using HostParams = LaunchParamsOf<limits::models>;

// Trace words. Each tick appends one record to LaunchParams::trace:
//
//   kTraceTick, words of the record, tick, models x live pages as the tick's code saw them, models x cached pages,
//   rows, words per row and from bit kTraceModelShift on the number of their model, requests
//   rows x      the words of Row (Contract/Row.h); where the pipeline has reducers beside argmax, those of
//               LaunchParams::reduced, all bits set where a reducer does not read the row; one more with a hash of its
//               K and V when kvHash is set
//   requests x  slot (-1: it holds none), request, state at the start and at the end of
//               the tick, fault, models x (kvLen, pages), gauges
//               models x pages x page id, in position order; where leading pages were given back,
//               one word in front of them has their number, negated, and counts as one of the pages
//               gauges x gauge number and value (the bits of an i32 or f32)
//   host's side where there is one (bit kTraceHost of `requests`): milliseconds of the run, events; of each the number
//               of the request, with bit kTraceCancels if it was taken back, else it arrived
//
// Models are those of LaunchParams::models, each once, in their order.
//
// Requests: each slot that holds one at the end of the tick, ascending; then those
// without slot that changed state, ascending. A request faulted in this tick when its
// state changed and its fault is not 0. A record that does not fit is dropped, as are
// all after it, and counted in Stats::traceDropped.
//
// A kernel for several models can have several passes in a tick. The record of the tick has no
// rows then. Each pass has a record of its own in front of it, in their order:
//
//   kTracePass, words of the record, tick, rows, words per row and the number of the model
//   rows x      as above
constexpr unsigned kTraceTick = 0x4b434954;                         ///< "TICK"
constexpr unsigned kTracePass = 0x53534150;                         ///< "PASS"
constexpr int kTracePassWords = 5;                                  ///< before the rows
constexpr int traceTickWords(int models) { return 6 + 2 * models; } ///< before the rows
constexpr int kTraceModelShift = 16;
constexpr unsigned kTraceHost = 1u << 31, kTraceCancels = 1u << 31;
constexpr int traceRequestWords(int models) { return 6 + 2 * models; } ///< before the page ids
constexpr int kTraceTickWords = traceTickWords(kModels), kTraceRequestWords = traceRequestWords(kModels);

} // namespace megalith::abi
