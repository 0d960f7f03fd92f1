#include "megalith/Checkpoint/SafetensorsFile.h"
#include "CheckpointFolder.h"
#include "device/Convert.h"
#include "megalith/Json/JsonText.h"
#include "megalith/Os/MappedFile.h"
#include "megalith/Os/ReadFile.h"
#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <set>
#include <sys/stat.h>

using namespace megalith;
using nlohmann::json;

namespace {

struct DTypeInfo {
  std::string_view name;
  unsigned size;
};

/// In the order of `DType`.
constexpr DTypeInfo DTypes[] = {{"BOOL", 1}, {"U8", 1},  {"I8", 1},   {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"I16", 2},
                                {"U16", 2},  {"F16", 2}, {"BF16", 2}, {"I32", 4},     {"U32", 4},     {"F32", 4},
                                {"I64", 8},  {"U64", 8}, {"F64", 8},  {"C64", 8},     {"F8_E8M0", 1}};

/// The reference implementation's bound on the header.
constexpr uint64_t MaxHeaderBytes = 100'000'000;

/// A tensor's place in the data section, for the check of holes and overlaps.
struct Extent {
  uint64_t begin, end;
  std::string name;
};

/// Checks one file's header; the members are what its helpers share.
struct HeaderReader {
  const std::string &path;
  uint64_t dataBytes;
  const uint8_t *data;
  std::map<std::string, TensorView, std::less<>> &tensors;
  /// In which file an index puts each tensor, and what it calls this one.
  const std::map<std::string, std::string> &placed;
  const std::string &shard;
  std::vector<Extent> extents;

  FileError fail(const char *kind, std::string message) const { return {kind, std::move(message), path}; }
  std::optional<FileError> readAll(const json &header);
  std::optional<FileError> readTensor(const std::string &name, const json &entry);
  std::optional<FileError> checkCover();
};

} // namespace

unsigned megalith::dtypeSize(DType dtype) { return DTypes[static_cast<size_t>(dtype)].size; }

std::string_view megalith::dtypeName(DType dtype) { return DTypes[static_cast<size_t>(dtype)].name; }

bool megalith::isWeightType(DType dtype) { return dtype == DType::BF16 || dtype == DType::F16 || dtype == DType::F32; }

void megalith::toBf16(DType dtype, const void *from, uint64_t count, uint16_t *to) {
  assert(isWeightType(dtype));
  if (dtype == DType::BF16) {
    std::memcpy(to, from, count * 2);
    return;
  }
  const auto *bytes = static_cast<const char *>(from); // perhaps not aligned
  for (uint64_t i = 0; i < count; ++i)
    if (dtype == DType::F16) {
      uint16_t bits;
      std::memcpy(&bits, bytes + 2 * i, sizeof bits);
      to[i] = convert::bf16OfF16(bits);
    } else {
      uint32_t bits;
      std::memcpy(&bits, bytes + 4 * i, sizeof bits);
      to[i] = convert::bf16OfF32(bits);
    }
}

std::string TensorView::shapeText() const { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::optional<FileError> HeaderReader::readTensor(const std::string &name, const json &entry) {
  if (!entry.is_object())
    return fail("safetensors-header",
                fmt::format("tensor `{}`: expected an object, found {}", name, entry.type_name()));
  for (const char *key : {"dtype", "shape", "data_offsets"})
    if (!entry.contains(key))
      return fail("safetensors-header", fmt::format("tensor `{}` has no `{}`", name, key));
  const json &dtype = entry["dtype"], &shape = entry["shape"], &offsets = entry["data_offsets"];
  const DTypeInfo *info = std::end(DTypes);
  if (dtype.is_string())
    info = std::find_if(std::begin(DTypes), std::end(DTypes),
                        [&](const DTypeInfo &d) { return d.name == dtype.get_ref<const std::string &>(); });
  if (info == std::end(DTypes))
    return fail("safetensors-dtype",
                fmt::format("tensor `{}` has the unknown dtype `{}`; weights may be BF16, F16 or "
                            "F32: take a checkpoint that is not quantised",
                            name, dtype.is_string() ? dtype.get<std::string>() : jsonShort(dtype)));

  if (!shape.is_array() || std::any_of(shape.begin(), shape.end(), [](auto &d) { return !d.is_number_unsigned(); }))
    return fail("safetensors-header", fmt::format("tensor `{}`: `shape` must be a list of numbers "
                                                  "that are not negative, found `{}`",
                                                  name, jsonShort(shape)));
  TensorView view{static_cast<DType>(info - DTypes), {}, nullptr, 0};
  uint64_t bytes = info->size;
  bool overflow = false;
  for (const json &item : shape) {
    uint64_t dim = item.get<uint64_t>();
    overflow |= dim > static_cast<uint64_t>(INT64_MAX) || __builtin_mul_overflow(bytes, dim, &bytes);
    view.shape.push_back(static_cast<int64_t>(dim));
  }
  if (overflow)
    return fail("safetensors-header", fmt::format("tensor `{}`: the size of shape {} does not fit "
                                                  "in 64 bits",
                                                  name, jsonShort(shape)));

  if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
      !offsets[1].is_number_unsigned())
    return fail("safetensors-header", fmt::format("tensor `{}`: `data_offsets` must be two numbers "
                                                  "that are not negative, found `{}`",
                                                  name, jsonShort(offsets)));
  uint64_t begin = offsets[0].get<uint64_t>(), end = offsets[1].get<uint64_t>();
  if (begin > end)
    return fail("safetensors-offsets", fmt::format("tensor `{}` begins at byte {} and ends before it, "
                                                   "at {}",
                                                   name, begin, end));
  if (end - begin != bytes)
    return fail("safetensors-offsets", fmt::format("tensor `{}` has {} bytes, but {} {} needs {}", name, end - begin,
                                                   info->name, view.shapeText(), bytes));
  if (end > dataBytes)
    return fail("safetensors-truncated", fmt::format("tensor `{}` ends at byte {} of the data, but the "
                                                     "file holds only {}",
                                                     name, end, dataBytes));
  view.data = data + begin;
  view.size = bytes;
  extents.push_back({begin, end, name});
  const auto [at, isNew] = tensors.try_emplace(name, view);
  if (isNew)
    return std::nullopt;
  // Some tools leave a copy in another shard; the index says which one counts.
  const auto place = placed.find(name);
  if (place == placed.end())
    return fail("safetensors-header", fmt::format("tensor `{}` is in more than one file", name));
  if (place->second == shard)
    at->second = std::move(view);
  return std::nullopt;
}

std::optional<FileError> HeaderReader::checkCover() {
  std::sort(extents.begin(), extents.end(),
            [](const Extent &a, const Extent &b) { return std::tie(a.begin, a.end) < std::tie(b.begin, b.end); });
  uint64_t reached = 0;
  std::string previous;
  for (const Extent &extent : extents) {
    if (extent.begin < reached)
      return fail("safetensors-offsets", fmt::format("tensor `{}` begins at byte {} and overlaps "
                                                     "`{}`, which ends at {}",
                                                     extent.name, extent.begin, previous, reached));
    if (extent.begin > reached)
      return fail("safetensors-offsets", fmt::format("bytes {} to {} before tensor `{}` belong to no "
                                                     "tensor",
                                                     reached, extent.begin, extent.name));
    reached = extent.end;
    previous = extent.name;
  }
  if (reached != dataBytes)
    return fail("safetensors-offsets", fmt::format("the tensors end at byte {} of the data, but the "
                                                   "file holds {}",
                                                   reached, dataBytes));
  return std::nullopt;
}

std::optional<FileError> HeaderReader::readAll(const json &header) {
  if (!header.is_object())
    return fail("safetensors-header", fmt::format("the header must be a JSON object, found {}", header.type_name()));
  for (const auto &[name, entry] : header.items())
    if (name != "__metadata__")
      if (auto error = readTensor(name, entry))
        return error;
  return checkCover();
}

std::optional<FileError> SafetensorsFile::add(const std::string &path, const Places &placed, const std::string &shard) {
  auto fail = [&](const char *kind, std::string message) { return FileError{kind, std::move(message), path}; };
  std::string reason;
  auto file = os::MappedFile::open(path, reason);
  if (!file) {
    const auto count = std::count_if(placed.begin(), placed.end(), [&](const auto &p) { return p.second == shard; });
    return fail("safetensors-missing",
                fmt::format("cannot read the weights: {}{}", reason,
                            shard.empty() ? ""
                                          : fmt::format("; the index puts {} {} into this file, so download it, too",
                                                        count, count == 1 ? "tensor" : "tensors")));
  }
  const uint64_t size = file->size();
  if (size < 8)
    return fail("safetensors-truncated", fmt::format("the file has {} bytes, but the length of the "
                                                     "header alone takes 8",
                                                     size));
  Mappings.push_back(file);

  const uint8_t *bytes = file->data();
  if (isLfsPointer({reinterpret_cast<const char *>(bytes), std::min<size_t>(size, 256)}))
    return fail("safetensors-header", lfsAdvice);
  uint64_t headerBytes = 0;
  for (int i = 7; i >= 0; --i)
    headerBytes = headerBytes << 8 | bytes[i];
  if (headerBytes > MaxHeaderBytes)
    return fail("safetensors-header", fmt::format("the header claims {} bytes, more than the "
                                                  "format's {}; this is not a safetensors file",
                                                  headerBytes, MaxHeaderBytes));
  if (headerBytes > size - 8)
    return fail("safetensors-truncated", fmt::format("the header claims {} bytes, but the file ends "
                                                     "{} bytes after its length",
                                                     headerBytes, size - 8));
  json header;
  std::string_view text(reinterpret_cast<const char *>(bytes) + 8, headerBytes);
  if (auto problem = parseJson(text, header))
    return fail("safetensors-header",
                fmt::format("the header is not valid JSON at its byte {}: {}", problem->byte, problem->message));
  HeaderReader reader{path, size - 8 - headerBytes, bytes + 8 + headerBytes, Tensors, placed, shard, {}};
  return reader.readAll(header);
}

/// Whether a path of an index leads to a file below the checkpoint's folder.
static bool staysInside(const std::string &path) {
  if (path.empty() || path.front() == '/' || path.find('\0') != std::string::npos)
    return false;
  for (const auto &part : std::filesystem::path(path))
    if (part == "..")
      return false;
  return true;
}

std::optional<FileError> SafetensorsFile::addShards(const std::string &dir) {
  auto fail = [&](const char *kind, std::string message) { return FileError{kind, std::move(message), Path}; };
  std::string reason;
  std::optional<std::string> text = os::readRegularFile(Path, os::jsonBytes, reason);
  if (!text)
    return fail("safetensors-missing", fmt::format("cannot read the index of the weights: {}", reason));
  if (isLfsPointer(*text))
    return fail("safetensors-header", lfsAdvice);
  json index;
  if (auto problem = parseJson(*text, index)) {
    FileError error = fail("safetensors-header", fmt::format("not valid JSON: {}", problem->message));
    error.line = problem->line;
    error.column = problem->column;
    error.text = std::make_shared<const std::string>(std::move(*text));
    return error;
  }
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object())
    return fail("safetensors-header", "the index has no object `weight_map`");
  std::set<std::string> shards;
  Places placed;
  for (const auto &[tensor, shard] : index["weight_map"].items()) {
    if (!shard.is_string() || !staysInside(shard.get_ref<const std::string &>()))
      return fail("safetensors-header",
                  fmt::format("tensor `{}`: expected the name of a file in the checkpoint's folder, found `{}`", tensor,
                              jsonShort(shard)));
    // `./a` and `a` are one file.
    placed[tensor] = std::filesystem::path(shard.get<std::string>()).lexically_normal().string();
    shards.insert(placed[tensor]);
  }
  for (const std::string &shard : shards)
    if (auto error = add(dir + "/" + shard, placed, shard))
      return error;
  // Only who reads such a tensor misses it.
  for (const auto &[tensor, shard] : placed)
    if (!Tensors.count(tensor))
      Listed[tensor] = shard;
  return std::nullopt;
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string &path) {
  SafetensorsFile result;
  result.Path = path;
  if (auto error = result.add(path, {}, ""))
    return *error;
  return result;
}

/// Of a folder without the usual names: the only index, the only file, or a whole set of parts whose index is lost.
Result<SafetensorsFile> SafetensorsFile::loadOther(const std::string &dir) {
  const OtherShards found = otherShards(dir);
  SafetensorsFile result;
  if (found.indices.size() == 1) {
    result.Path = dir + "/" + found.indices.front();
    if (auto error = result.addShards(dir))
      return *error;
    return result;
  }
  if (found.indices.empty() && found.files.size() == 1 && found.missing.empty())
    return open(dir + "/" + found.files.front());
  if (found.indices.empty() && found.isWhole) {
    result.Path = dir;
    for (const std::string &name : found.files)
      if (auto error = result.add(dir + "/" + name, {}, ""))
        return *error;
    return result;
  }
  const std::string single = dir + "/model.safetensors";
  if (found.indices.empty() && !found.missing.empty())
    return FileError{"safetensors-missing", "this part of the weights is missing; download it, too",
                     dir + "/" + found.missing};
  if (!found.indices.empty() || !found.files.empty()) {
    const auto &names = found.indices.empty() ? found.files : found.indices;
    return FileError{"safetensors-missing",
                     fmt::format("which weights are meant? There are `{}` and `{}`{}, but neither "
                                 "`model.safetensors` nor `model.safetensors.index.json`; leave one set there",
                                 names[0], names[1], names.size() > 2 ? " and more" : ""),
                     dir};
  }
  if (Mistaken mistaken = mistakenFolder(dir); !mistaken.advice.empty())
    return FileError{"safetensors-missing", "there is no model.safetensors, and " + mistaken.advice, mistaken.path};
  return FileError{"safetensors-missing",
                   "there are no weights: neither this file nor `model.safetensors.index.json`; download them, too",
                   single};
}

Result<SafetensorsFile> SafetensorsFile::load(const std::string &dir) {
  std::string single = dir + "/model.safetensors";
  std::string index = single + ".index.json";
  struct stat status;
  if (stat(single.c_str(), &status) == 0 || errno != ENOENT)
    return open(single);
  SafetensorsFile result;
  if (stat(index.c_str(), &status) != 0)
    return loadOther(dir);
  result.Path = index;
  if (auto error = result.addShards(dir))
    return *error;
  return result;
}

std::optional<FileError> SafetensorsFile::read(const TensorView &tensor, uint64_t offset, uint64_t count,
                                               void *to) const {
  const auto at = reinterpret_cast<uintptr_t>(tensor.data);
  for (const auto &file : Mappings)
    if (const auto begin = reinterpret_cast<uintptr_t>(file->data()); at >= begin && at - begin <= file->size()) {
      if (std::string why = file->read(at - begin + offset, count, to); !why.empty())
        return FileError{"input-changed", why, file->path()};
      return std::nullopt;
    }
  assert(count == 0 && "a tensor of another file");
  return std::nullopt;
}

void SafetensorsFile::willRead() const {
  for (const auto &file : Mappings)
    file->willRead();
}

std::optional<FileError> SafetensorsFile::changed() const {
  for (const auto &file : Mappings)
    if (std::string why = file->whyChanged(); !why.empty())
      return FileError{"input-changed", why, file->path()};
  return std::nullopt;
}

std::vector<std::string> SafetensorsFile::files() const {
  std::vector<std::string> paths;
  for (const auto &mapping : Mappings)
    paths.push_back(mapping->path());
  return paths;
}

const TensorView *SafetensorsFile::find(std::string_view name) const {
  auto found = Tensors.find(name);
  return found == Tensors.end() ? nullptr : &found->second;
}

const std::string *SafetensorsFile::listedIn(std::string_view name) const {
  auto found = Listed.find(name);
  return found == Listed.end() ? nullptr : &found->second;
}

//===--- names with a layer in them -----------------------------------------===//

static constexpr std::string_view LayerPlace = "{i}";

static size_t digitsAt(std::string_view text) { return std::min(text.size(), text.find_first_not_of("0123456789")); }

std::string megalith::layerTensor(std::string_view pattern, int64_t layer) {
  std::string name(pattern);
  const std::string number = std::to_string(layer);
  for (size_t at = 0; (at = name.find(LayerPlace, at)) != name.npos; at += number.size())
    name.replace(at, LayerPlace.size(), number);
  return name;
}

bool megalith::matchesPattern(std::string_view pattern, std::string_view name) {
  while (true) {
    const size_t at = std::min(pattern.size(), pattern.find(LayerPlace));
    if (name.substr(0, at) != pattern.substr(0, at))
      return false;
    name.remove_prefix(at);
    if (at == pattern.size())
      return name.empty();
    pattern.remove_prefix(at + LayerPlace.size());
    const size_t digits = digitsAt(name);
    if (digits == 0)
      return false;
    name.remove_prefix(digits);
  }
}

std::string megalith::patternOf(std::string_view name) {
  std::string result;
  while (true) {
    const size_t dot = name.find('.');
    const std::string_view part = name.substr(0, dot);
    result += !part.empty() && digitsAt(part) == part.size() ? LayerPlace : part;
    if (dot == name.npos)
      return result;
    result += '.';
    name.remove_prefix(dot + 1);
  }
}

std::string megalith::safetensorsText(const std::map<std::string, TensorView> &tensors) {
  nlohmann::json list = nlohmann::json::object();
  std::string data;
  for (const auto &[name, tensor] : tensors) {
    list[name] = {{"dtype", dtypeName(tensor.dtype)},
                  {"shape", tensor.shape},
                  {"data_offsets", {data.size(), data.size() + tensor.size}}};
    data.append(reinterpret_cast<const char *>(tensor.data), tensor.size);
  }
  std::string header = list.dump();
  header.resize((header.size() + 7) / 8 * 8, ' '); // data is aligned
  std::string out(8, '\0');
  for (int byte = 0; byte < 8; ++byte)
    out[byte] = static_cast<char>(header.size() >> 8 * byte);
  return out + header + data;
}
