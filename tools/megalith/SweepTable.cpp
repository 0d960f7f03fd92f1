#include "Measured.h"
#include "Report.h"
#include "Sweep.h"
#include "megalith/Os/WriteFile.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"
#include <cstdlib>

namespace megalith::tool {

/// Columns that other tools know, then ours. `@`: the unit of times.
static constexpr const char *knownColumns[] = {"mode",
                                               "requests",
                                               "tokens_per_request",
                                               "draft_len",
                                               "host_kernel_launches",
                                               "host_synchronizations",
                                               "completed_requests",
                                               "target_requests",
                                               "tokens_generated",
                                               "elapsed_ms",
                                               "tokens_per_second",
                                               "launch_reduction",
                                               "sync_reduction",
                                               "speedup_vs_baseline"};
static constexpr const char *nameColumns[] = {"speedup_vs_plain", "pipeline", "control", "ticks_per_launch", "context"};
static constexpr const char *measuredColumns[] = {"synthetic_acceptance",
                                                  "seed",
                                                  "repeat",
                                                  "device",
                                                  "device_name",
                                                  "shape",
                                                  "tokens_proposed",
                                                  "acceptance",
                                                  "block_mean",
                                                  "block_min",
                                                  "block_max",
                                                  "ticks",
                                                  "passes",
                                                  "rows",
                                                  "host_graph_launches",
                                                  "host_copies",
                                                  "host_bytes",
                                                  "pages_live_most",
                                                  "fragmentation",
                                                  "queued_mean_@",
                                                  "queued_max_@",
                                                  "ttft_mean_@",
                                                  "ttft_p50_@",
                                                  "ttft_p95_@",
                                                  "ttft_p99_@",
                                                  "ttft_max_@",
                                                  "itl_p50_@",
                                                  "itl_p95_@",
                                                  "itl_p99_@",
                                                  "itl_max_@",
                                                  "tpot_@",
                                                  "run_ms",
                                                  "percent_of_floor",
                                                  "bandwidth_gb_s",
                                                  "accepted",
                                                  "sweep"};

SweepTable::SweepTable(const SweepCommand &command, const SweepPlan &plan)
    : plan(plan), path(command.csvFile == "-" ? "" : command.csvFile), gpu(command.device == Device::Cuda) {
  keyColumns = {"requests", "tokens_per_request", "pipeline", "control", "context", "synthetic_acceptance", "repeat"};
  const auto add = [&](std::string name) {
    if (const size_t at = name.find('@'); at != std::string::npos)
      name.replace(at, 1, unit());
    columns.push_back(name);
  };
  llvm::for_each(knownColumns, add);
  llvm::for_each(nameColumns, add);
  for (const std::string &param : plan.params) {
    add("param_" + param);
    keyColumns.push_back("param_" + param);
  }
  llvm::for_each(measuredColumns, add);
}

std::string SweepTable::lineOf(const SweepRow &row) const {
  std::string line;
  for (const std::string &column : columns) {
    const auto cell = row.find(column);
    line += (&column == &columns.front() ? "" : ",") + csvField(cell == row.end() ? "" : cell->second);
  }
  return line + "\n";
}

/// The cells of a line of CSV without newlines in them.
static std::vector<std::string> cellsOf(llvm::StringRef line) {
  std::vector<std::string> cells = {""};
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"')
      cells.back() += line[i++];
    else if (line[i] == '"')
      quoted = !quoted;
    else if (line[i] == ',' && !quoted)
      cells.emplace_back();
    else
      cells.back() += line[i];
  }
  return cells;
}

bool SweepTable::open(Diagnostics &diags) {
  if (path.empty() || !llvm::sys::fs::exists(path))
    return true;
  if (!llvm::sys::fs::is_regular_file(path)) // a pipe has nothing to go on from
    return true;
  auto buffer = llvm::MemoryBuffer::getFile(path, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!buffer) {
    diags.report(Diag::CannotReadFile, {}, path, buffer.getError().message());
    return false;
  }
  const auto refuse = [&](const std::string &why) {
    diags.report(Diag::SweepFile, {}, path, why);
    return false;
  };
  const llvm::StringRef text = (*buffer)->getBuffer();
  const llvm::StringRef whole = text.take_front(text.rfind('\n') + 1); // what comes after it was interrupted
  std::string header;
  for (const std::string &column : columns)
    header += (header.empty() ? "" : ",") + column;
  llvm::SmallVector<llvm::StringRef> lines;
  whole.split(lines, '\n', -1, /*KeepEmpty=*/false);
  if (lines.empty() ? !llvm::StringRef(header).starts_with(text) : !lines[0].starts_with("mode,requests,"))
    return refuse("it is not the CSV of a sweep");
  constexpr const char *other = "it is of another sweep: options, kernels, weights or device were not these";
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i == 0 && lines[0] != header)
      return refuse(other);
    const std::vector<std::string> cells = cellsOf(lines[i]);
    if (cells.size() != columns.size())
      return refuse(
          fmt::format("line {} has {} columns, and the first one has {}", i + 1, cells.size(), columns.size()));
    if (i == 0)
      continue;
    SweepRow &row = all.emplace_back();
    for (size_t c = 0; c < cells.size(); ++c)
      row[columns[c]] = cells[c];
    if (row["sweep"] != plan.key)
      return refuse(other);
  }
  begun = !lines.empty();
  return whole.size() == text.size() || writeOutput(path, whole, diags);
}

SweepRow SweepTable::keyOf(const SweepPoint &point, int64_t repeat) const {
  const SweepKernel &kernel = plan.kernels[point.kernel];
  SweepRow key = {{"requests", std::to_string(point.requests)},
                  {"tokens_per_request", std::to_string(point.tokens)},
                  {"pipeline", kernel.program.name()},
                  {"control", controlName(point.control)},
                  {"context", std::to_string(point.context)},
                  {"synthetic_acceptance", point.acceptance},
                  {"repeat", std::to_string(repeat)}};
  for (const std::string &param : plan.params) {
    const auto value = kernel.params.find(param);
    key["param_" + param] = value == kernel.params.end() ? "" : value->second;
  }
  return key;
}

std::vector<const SweepRow *> SweepTable::like(const SweepRow &wanted) const {
  std::vector<const SweepRow *> found;
  for (const SweepRow &row : all)
    if (llvm::all_of(wanted, [&](const auto &cell) {
          const auto own = row.find(cell.first);
          return (own == row.end() ? "" : own->second) == cell.second;
        }))
      found.push_back(&row);
  return found;
}

bool SweepTable::has(const SweepRow &key) const { return !like(key).empty(); }

/// The median of a column; nullopt where a row has no number.
static std::optional<double> medianOf(const std::vector<const SweepRow *> &rows, const std::string &column) {
  std::vector<double> values;
  for (const SweepRow *row : rows) {
    const auto cell = row->find(column);
    if (cell == row->end() || cell->second.empty())
      return std::nullopt;
    values.push_back(std::strtod(cell->second.c_str(), nullptr));
  }
  return values.empty() ? std::nullopt : std::optional(tools::percentile(std::move(values), 50));
}

/// Fills in how many times as much the others have in `from`.
static void compare(const std::vector<const SweepRow *> &others, const std::string &from, const std::string &to,
                    SweepRow &row) {
  const auto theirs = medianOf(others, from), own = medianOf({&row}, from);
  if (theirs && own && *own > 0)
    row[to] = fmt::format("{:.6g}", *theirs / *own);
}

void SweepTable::compareControls(const SweepPoint &point, SweepRow &row) const {
  SweepRow host = keyOf(point, 1);
  host.erase("repeat");
  host["control"] = "host";
  const bool own = point.control == Control::Host;
  const auto others = own ? std::vector<const SweepRow *>{&row} : like(host);
  compare(others, "host_kernel_launches", "launch_reduction", row);
  compare(others, "host_synchronizations", "sync_reduction", row);
  compare(others, "elapsed_ms", "speedup_vs_baseline", row);
}

void SweepTable::comparePlain(const SweepPoint &point, SweepRow &row) const {
  const SweepKernel &kernel = plan.kernels[point.kernel];
  for (size_t i = 0; i < plan.kernels.size(); ++i) {
    const SweepKernel &plain = plan.kernels[i];
    // What both vary has to be the same.
    const bool alike = llvm::all_of(plain.params, [&](const auto &param) {
      const auto own = kernel.params.find(param.first);
      return own == kernel.params.end() || own->second == param.second;
    });
    if (plain.drafts || !alike)
      continue;
    SweepPoint other = point;
    other.kernel = i;
    other.acceptance = "none";
    SweepRow wanted = keyOf(other, 1);
    wanted.erase("repeat");
    compare(i == point.kernel ? std::vector<const SweepRow *>{&row} : like(wanted), gpu ? "elapsed_ms" : "ticks",
            "speedup_vs_plain", row);
    return;
  }
}

bool SweepTable::add(const SweepPoint &point, SweepRow row, Diagnostics &diags) {
  compareControls(point, row);
  comparePlain(point, row);
  row["sweep"] = plan.key;
  std::string text;
  if (!begun)
    for (const std::string &column : columns)
      text += (text.empty() ? "" : ",") + column;
  text += (begun ? "" : "\n") + lineOf(row);
  if (path.empty()) {
    clearProgress();
    llvm::outs() << text;
    llvm::outs().flush();
  } else if (const std::string why = os::appendFile(path, text); !why.empty()) {
    diags.report(Diag::CannotWriteFile, {}, path, why);
    return false;
  }
  begun = true;
  all.push_back(std::move(row));
  return true;
}

} // namespace megalith::tool
