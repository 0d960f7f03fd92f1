#include "runtime/CallManifest.h"
#include "megalith/Json/JsonView.h"
#include <algorithm>
#include <charconv>
#include <sstream>

namespace megalith::runtime {

std::optional<Polish> Polish::parse(const std::string &text, const std::vector<std::string> &dims) {
  static constexpr std::pair<std::string_view, Kind> symbols[] = {{"+", Add}, {"-", Sub},   {"*", Mul},  {"/", Div},
                                                                  {"%", Mod}, {"min", Min}, {"max", Max}};
  Polish polish;
  std::istringstream words(text);
  int depth = 0;
  for (std::string word; words >> word;) {
    if (const auto dim = std::find(dims.begin(), dims.end(), word); dim != dims.end()) {
      polish.words.push_back({Dim, dim - dims.begin()});
      ++depth;
      continue;
    }
    const auto symbol = std::find_if(std::begin(symbols), std::end(symbols),
                                     [&](const auto &candidate) { return candidate.first == word; });
    if (symbol != std::end(symbols)) {
      polish.words.push_back({symbol->second, 0});
      if (--depth < 1)
        return std::nullopt;
      continue;
    }
    int64_t number = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (error != std::errc() || end != word.data() + word.size())
      return std::nullopt;
    polish.words.push_back({Number, number});
    if (++depth > 64)
      return std::nullopt;
  }
  return depth == 1 ? std::optional(std::move(polish)) : std::nullopt;
}

int Polish::dim() const { return words.size() == 1 && words[0].kind == Dim ? static_cast<int>(words[0].value) : -1; }

std::optional<int64_t> Polish::of(std::span<const int64_t> dims) const {
  int64_t stack[64];
  size_t top = 0;
  for (const Word &word : words) {
    if (word.kind == Number || word.kind == Dim) {
      stack[top++] = word.kind == Number ? word.value : dims[static_cast<size_t>(word.value)];
      continue;
    }
    const int64_t b = stack[--top], a = stack[top - 1];
    int64_t &result = stack[top - 1];
    switch (word.kind) {
    case Add:
      result = a + b;
      break;
    case Sub:
      result = a - b;
      break;
    case Mul:
      result = a * b;
      break;
    case Div: // as stages divide
      result = b == 0 ? 0 : a / b;
      break;
    case Mod:
      result = b == 0 ? 0 : a % b;
      break;
    case Min:
      result = std::min(a, b);
      break;
    default:
      result = std::max(a, b);
    }
    if (result < INT32_MIN || result > INT32_MAX)
      return std::nullopt;
  }
  return stack[0];
}

static int64_t bytesOfType(const std::string &dtype) {
  return dtype == "i64" ? 8 : dtype == "f16" || dtype == "bf16" ? 2 : dtype == "bool" ? 1 : 4;
}

static CallManifest readCall(const JsonView &json) {
  CallManifest m;
  m.name = json.at("call").string();
  m.sms = json.at("sms").integer(1);
  m.paramsBytes = json.at("params_bytes").integer(0);
  m.sortWords = json.at("sort_words").integer(0);
  const auto costs = [&](const char *key) {
    std::vector<int64_t> of;
    json.at(key).list([&](const JsonView &number) { of.push_back(number.integer(0)); });
    if (of.size() != 4 || of[2] == 0 || of[3] == 0)
      json.at(key).wrong("must have four numbers");
    return CallManifest::Costs{of[0], of[1], of[2], of[3]};
  };
  m.lane = costs("lane_costs");
  m.warp = costs("warp_costs");
  std::vector<std::string> names;
  json.at("dims").list([&](const JsonView &dim) {
    m.dims.push_back({dim.at("name").string(), dim.at("least").integer(0), dim.at("most").integer(0)});
    names.push_back(m.dims.back().name);
  });
  const auto polish = [&](const JsonView &text) {
    auto parsed = Polish::parse(text.string(), names);
    if (!parsed)
      text.wrong("must be arithmetic on dims");
    return std::move(*parsed);
  };
  json.at("buffers").list([&](const JsonView &buffer) {
    CallManifest::Buffer &b = m.buffers.emplace_back();
    b.name = buffer.at("name").string();
    b.dtype = buffer.at("dtype").string();
    b.elementBytes = bytesOfType(b.dtype);
    const auto *type = std::find(std::begin(elementTypes), std::end(elementTypes), b.dtype);
    if (type == std::end(elementTypes))
      buffer.at("dtype").wrong("must be a type of elements");
    b.type = static_cast<int>(type - std::begin(elementTypes));
    b.written = buffer.at("written").boolean();
    buffer.at("shape").list([&](const JsonView &size) { b.shape.push_back(polish(size)); });
  });
  json.at("stages").list([&](const JsonView &stage) {
    CallManifest::Stage &s = m.stages.emplace_back();
    s.name = stage.at("name").string();
    s.mapping = stage.at("mapping").string();
    s.once = stage.at("once").boolean();
    s.copies = stage.at("copies").integer(0);
    const auto maybe = [&](const char *key) {
      return stage.at(key).string().empty() ? std::nullopt : std::optional(polish(stage.at(key)));
    };
    s.low = maybe("low");
    s.high = maybe("high");
    s.span = maybe("span");
    s.copyBytes = maybe("copy_bytes");
    s.scan = maybe("scan");
    s.scanBytes = stage.at("scan_bytes").integer(0);
  });
  return m;
}

Outcome<CallManifest> CallManifest::parse(const std::string &text) {
  try {
    nlohmann::json value;
    parseJsonText(text, value);
    const JsonView manifest(value, "the manifest");
    if (const int64_t version = manifest.at("abi").integer(); version != abi::kCallAbiVersion)
      return RuntimeError{"manifest", "the manifest has version " + std::to_string(version) +
                                          " of calls, this runtime has " + std::to_string(abi::kCallAbiVersion) +
                                          "; compile the pipeline again"};
    return readCall(manifest);
  } catch (const JsonWrong &problem) {
    return RuntimeError{"manifest", "the manifest cannot be read: " + problem.message};
  }
}

CallImage::CallImage(const CallManifest &manifest, int64_t mostCtas) : manifest(manifest), mostCtas(mostCtas) {
  params.resize(static_cast<size_t>(manifest.paramsBytes) / 8);
  dims.resize(manifest.dims.size());
  bytes.resize(manifest.buffers.size());
  memory.resize(manifest.buffers.size());
  size_t place = sizeof(abi::CallHeader) + manifest.stages.size() * sizeof(abi::StageWork);
  place += (manifest.dims.size() * 4 + 7) / 8 * 8;
  size_t count = 0;
  for (const CallManifest::Buffer &buffer : manifest.buffers) {
    places.push_back(place);
    place += 8 + (buffer.shape.size() * 4 + 7) / 8 * 8;
    count += buffer.shape.size();
  }
  sizes.resize(count);
  lastSizes.resize(count);
}

/// Sizes that are a dim say what it is; all others must follow from these.
bool CallImage::findDims(std::span<const CallBuffer> buffers) {
  std::fill(dims.begin(), dims.end(), -1);
  for (size_t b = 0; b < buffers.size(); ++b)
    for (size_t d = 0; d < manifest.buffers[b].shape.size(); ++d)
      if (const int dim = manifest.buffers[b].shape[d].dim(); dim >= 0)
        dims[static_cast<size_t>(dim)] = buffers[b].shape[d];
  for (size_t i = 0; i < dims.size(); ++i)
    if (dims[i] < manifest.dims[i].least || dims[i] > manifest.dims[i].most)
      return false;
  for (size_t b = 0; b < buffers.size(); ++b) {
    int64_t elements = 1;
    for (size_t d = 0; d < manifest.buffers[b].shape.size(); ++d) {
      const auto size = manifest.buffers[b].shape[d].of(dims);
      if (!size || *size < 0 || *size != buffers[b].shape[d] ||
          (*size > 0 && elements > (INT64_C(1) << 48) / *size)) // as ir::shapesOf has it
        return false;
      elements *= *size;
    }
    bytes[b] = elements * manifest.buffers[b].elementBytes;
  }
  return true;
}

static int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

bool CallImage::planStage(const CallManifest::Stage &stage, abi::StageWork &work) const {
  constexpr int64_t threads = 256, warps = 8;
  work = {};
  if (stage.once) {
    work.taken = static_cast<int>(abi::Taken::Once);
    return true;
  }
  const auto low = stage.low->of(dims), high = stage.high->of(dims);
  if (!low || !high)
    return false;
  work.low = static_cast<int>(*low);
  work.high = static_cast<int>(std::max(*low, *high));
  const int64_t items = int64_t(work.high) - work.low;
  const auto tickets = [&](int64_t of) { work.tickets = static_cast<int>(std::min(of, mostCtas)); };
  if (stage.copies > 0) {
    work.taken = static_cast<int>(abi::Taken::Bytes);
    const int64_t each = stage.copyBytes->of(dims).value_or(INT32_MAX);
    const int64_t parts = std::max<int64_t>(1, ceilDiv(each, abi::kCallPartBytes));
    const __int128 units = __int128(items) * stage.copies * parts;
    if (units > INT32_MAX) // more memory than a device has
      return false;
    work.parts = static_cast<int>(parts);
    tickets(ceilDiv(static_cast<int64_t>(units), warps));
    return true;
  }
  std::string mapping = stage.mapping;
  if (mapping == "auto") {
    const int64_t span = stage.span ? stage.span->of(dims).value_or(INT32_MAX) : 0;
    const auto cost = [&](const CallManifest::Costs &of) {
      return double(ceilDiv(items, of.itemsOfSm * manifest.sms)) *
             (double(of.first) + double(of.step) * double(ceilDiv(span, of.stepNumbers)));
    };
    mapping = cost(manifest.lane) < cost(manifest.warp) ? "lane" : "warp";
  }
  if (mapping == "serial") {
    work.taken = static_cast<int>(abi::Taken::Serial);
    tickets(items > 0);
  } else if (mapping == "lane") {
    work.taken = static_cast<int>(abi::Taken::Lane);
    tickets(ceilDiv(items, threads));
  } else {
    work.taken = static_cast<int>(abi::Taken::Warp);
    tickets(ceilDiv(items, warps));
  }
  return true;
}

bool CallImage::layOut(bool perStage) {
  char *base = reinterpret_cast<char *>(params.data());
  int *dim = reinterpret_cast<int *>(base + sizeof(abi::CallHeader) + manifest.stages.size() * sizeof(abi::StageWork));
  for (size_t i = 0; i < dims.size(); ++i)
    dim[i] = static_cast<int>(dims[i]);
  size_t next = 0;
  for (size_t b = 0; b < places.size(); ++b)
    for (size_t d = 0; d < manifest.buffers[b].shape.size(); ++d)
      reinterpret_cast<int *>(base + places[b] + 8)[d] = static_cast<int>(sizes[next++]);
  grids.clear();
  int begin = 0, need = 0;
  shared = static_cast<unsigned>(abi::kCallSharedBytes + 4 * manifest.sortWords);
  const int stages = static_cast<int>(manifest.stages.size());
  for (int s = 0; s < stages; ++s)
    if (!planStage(manifest.stages[static_cast<size_t>(s)], work()[s]))
      return false;
  for (int s = 0; s < stages; ++s) {
    abi::StageWork &of = work()[s];
    const CallManifest::Stage &stage = manifest.stages[static_cast<size_t>(s)];
    const int64_t scanned = stage.scan ? stage.scan->of(dims).value_or(INT32_MAX) : INT32_MAX;
    if (!perStage && scanned <= abi::kCallScanNumbers && work()[s + 1].tickets > 0) {
      of.taken = static_cast<int>(abi::Taken::Each);
      of.begin = begin;
      of.need = need;
      shared = std::max(shared, static_cast<unsigned>(abi::kCallSharedBytes + scanned * stage.scanBytes));
      continue;
    }
    // Where nobody ends a stage before, it has a ticket of its own.
    if (stage.once && (perStage || begin == 0 || work()[s - 1].need == need))
      of.tickets = 1;
    of.begin = begin;
    of.need = need;
    if (perStage) {
      if (of.tickets > 0)
        grids.push_back({static_cast<unsigned>(of.tickets), s, s + 1});
      continue;
    }
    begin += of.tickets;
    need += stage.once ? 1 : of.tickets;
  }
  if (!perStage && begin > 0)
    grids.push_back({static_cast<unsigned>(begin), 0, stages});
  return true;
}

CallProblem checkMemory(std::span<const CallMemory> buffers) {
  for (size_t b = 0; b < buffers.size(); ++b) {
    const auto [at, bytes, elementBytes, written] = buffers[b];
    const auto begin = reinterpret_cast<uintptr_t>(at), end = begin + static_cast<uintptr_t>(bytes);
    if (bytes == 0)
      continue;
    if (!at)
      return {CallProblem::Missing, b};
    if (begin % static_cast<uintptr_t>(elementBytes))
      return {CallProblem::Alignment, b};
    for (size_t other = 0; written && other < buffers.size(); ++other) {
      const auto otherBegin = reinterpret_cast<uintptr_t>(buffers[other].at);
      if (other != b && buffers[other].bytes > 0 && otherBegin < end &&
          begin < otherBegin + static_cast<uintptr_t>(buffers[other].bytes))
        return {CallProblem::Overlap, b, other};
    }
  }
  return {};
}

CallProblem CallImage::prepare(std::span<const CallBuffer> buffers, bool perStage) {
  size_t next = 0;
  for (size_t b = 0; b < buffers.size(); ++b)
    for (size_t d = 0; d < manifest.buffers[b].shape.size(); ++d)
      sizes[next++] = buffers[b].shape[d];
  if (!ready || perStage != lastPerStage || sizes != lastSizes) {
    ready = false;
    if (!findDims(buffers) || !layOut(perStage))
      return {CallProblem::Shapes};
    lastSizes = sizes;
    lastPerStage = perStage;
    ready = true;
  }
  for (size_t b = 0; b < buffers.size(); ++b)
    memory[b] = {buffers[b].data, bytes[b], manifest.buffers[b].elementBytes, manifest.buffers[b].written};
  if (const CallProblem problem = checkMemory(memory))
    return problem;
  for (size_t b = 0; b < buffers.size(); ++b)
    *reinterpret_cast<void **>(reinterpret_cast<char *>(params.data()) + places[b]) = buffers[b].data;
  return {};
}

void *CallImage::paramsOf(const Launch &launch, abi::CallCounters *counters, abi::CallStatus *status, unsigned serial) {
  abi::CallHeader &of = header();
  of.counters = counters;
  of.status = status;
  of.first = launch.first;
  of.last = launch.last;
  of.serial = serial;
  return params.data();
}

} // namespace megalith::runtime
