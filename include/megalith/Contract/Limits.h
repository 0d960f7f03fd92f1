//===- Limits.h - how much of everything there may be ---------------------===//
//
// One line for each limit: its name, its number, what it limits. Checks, the IR's verifier, the plan and device code
// take them from here. A test compares this list with the table of docs/language.md: a row of it begins with the words
// that stand after the number, and has the number. The kernel's compiler has no system header, so this file includes
// none.
//===----------------------------------------------------------------------===//
#pragma once

namespace megalith::limits {

constexpr int models = 4;                    ///< models of a pipeline
constexpr int slots = 1024;                  ///< `slots`
constexpr int rowsPerPass = 2048;            ///< `rows_per_pass`
constexpr int readRows = 128;                ///< rows of a pass, of calls that are read
constexpr int states = 64;                   ///< states
constexpr int gauges = 32;                   ///< traced values
constexpr int capacity = 1024;               ///< tokens of a field
constexpr int cells = 4096;                  ///< elements of a table
constexpr int inputCapacity = 65536;         ///< elements of an input
constexpr int pieces = 32;                   ///< pieces of a sequence
constexpr int leastRounds = 65536;           ///< rounds of a range
constexpr int roundsBeyond = 1024;           ///< rounds of a range
constexpr int roundsTogether = 1 << 24;      ///< rounds of a range inside other ranges
constexpr int loops = 4;                     ///< nested loops
constexpr int sortKeys = 8;                  ///< keys of `sort`
constexpr int orderKeys = 4;                 ///< keys of `order`
constexpr int looked = 1024;                 ///< `limit`
constexpr int ngram = 16;                    ///< `ngram`
constexpr int reduced = 64;                  ///< `n` of a reducer, `matches`
constexpr int edits = 1024;                  ///< tokens of `bias`, `banned` or `allowed`
constexpr int positions = 1 << 30;           ///< positions of a pool
constexpr int expressionLevels = 100;        ///< levels of an expression
constexpr int layers = 1 << 12;              ///< layers of a model
constexpr int heads = 1 << 20;               ///< heads of its attention
constexpr long long weightBytes = 1ll << 44; ///< weights of a model
constexpr int columns = 1 << 20;             ///< columns of a row
constexpr int dim = 1 << 24;                 ///< a dim of buffers
constexpr int bufferRank = 4;                ///< dimensions of a buffer
constexpr int callSort = 2048;               ///< numbers that a kernel sorts in a stage over buffers
constexpr int callStages = 24;               ///< stages of a kernel of a pipeline of buffers

} // namespace megalith::limits
