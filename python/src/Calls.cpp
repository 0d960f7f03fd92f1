//===- Calls.cpp - calls of pipelines of buffers ---------------------------===//
//
// A call must cost little: a loop of PyTorch makes one for each step. Tensors of libraries that have DLPack's exchange
// API (https://dmlc.github.io/dlpack, version 1.3) are looked at through it, in a fraction of a microsecond. Others
// come by `__cuda_array_interface__`, or by `__dlpack__`.
//===----------------------------------------------------------------------===//
#include "Core.h"
#include <array>
#include <cstring>

namespace megalith::python {

namespace {
using Tensor = nb::dlpack::dltensor;

/// What a type's `__dlpack_c_exchange_api__` points to: DLPackExchangeAPI.
struct ExchangeApi {
  struct Header {
    uint32_t major, minor;
    Header *before;
  } header;
  void *allocator, *managedFromObject, *managedToObject;
  int (*tensorFromObject)(void *object, Tensor *out);
  int (*currentStream)(int32_t deviceType, int32_t device, void **stream);
};
constexpr int32_t kHost = 1, kCuda = 2; // DLDeviceType

/// Of the tensor's type; null: it has none.
const ExchangeApi *exchangeOf(PyTypeObject *type) {
  static std::vector<std::pair<PyTypeObject *, const ExchangeApi *>> known; // under the GIL; types are few
  for (const auto &[of, api] : known)
    if (of == type)
      return api;
  const ExchangeApi *api = nullptr;
  if (nb::object capsule =
          nb::steal(PyObject_GetAttrString(reinterpret_cast<PyObject *>(type), "__dlpack_c_exchange_api__"));
      capsule.is_valid()) {
    auto *header = static_cast<ExchangeApi::Header *>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
    while (header && header->major != 1)
      header = header->before;
    api = reinterpret_cast<const ExchangeApi *>(header);
  }
  PyErr_Clear();
  Py_INCREF(type); // it must not become another one
  known.emplace_back(type, api);
  return api;
}

/// One buffer of a call, and what it holds on to.
struct Argument {
  CallBuffer buffer;
  std::array<int64_t, 8> shape;
  nb::object owner;
};

[[noreturn]] void refuse(std::string_view name, const std::string &why) {
  throw nb::type_error(("buffer `" + std::string(name) + "` " + why).c_str());
}

ElementType elementType(std::string_view name, int code, int bits) {
  if (code == 0 && bits == 32)
    return ElementType::I32;
  if (code == 0 && bits == 64)
    return ElementType::I64;
  if (code == 2 && bits == 32)
    return ElementType::F32;
  if (code == 2 && bits == 16)
    return ElementType::F16;
  if (code == 4 && bits == 16)
    return ElementType::BF16;
  if (code == 6 && bits == 8)
    return ElementType::Bool;
  refuse(name, "has elements that no buffer has: it takes int32, int64, float32, bool, float16 and bfloat16");
}

void setShape(Argument &out, size_t dimensions, const int64_t *shape) {
  if (dimensions > out.shape.size())
    refuse(out.buffer.name, "has too many dimensions");
  std::copy(shape, shape + dimensions, out.shape.begin());
  out.buffer.shape = out.shape.data();
  out.buffer.dimensions = dimensions;
}

/// Row-major, without gaps. `strides` are in elements.
void checkGaps(const Argument &of, const int64_t *strides) {
  int64_t expected = 1;
  bool empty = false;
  for (size_t d = 0; d < of.buffer.dimensions; ++d)
    empty |= of.shape[d] == 0;
  for (size_t d = of.buffer.dimensions; !empty && strides && d-- > 0; expected *= of.shape[d])
    if (of.shape[d] != 1 && strides[d] != expected)
      refuse(of.buffer.name, "has gaps, or another order than row-major: pass `.contiguous()`");
}

void fromTensor(Argument &out, const Tensor &tensor, bool onGpu, int ordinal) {
  const int32_t device = tensor.device.device_type;
  if (onGpu ? device != kCuda || tensor.device.device_id != ordinal : device != kHost)
    refuse(out.buffer.name,
           onGpu ? "is not in the memory of the GPU of the kernel" : "is not in the memory of the host");
  if (tensor.dtype.lanes != 1)
    refuse(out.buffer.name, "has vectors as its elements");
  out.buffer.type = elementType(out.buffer.name, tensor.dtype.code, tensor.dtype.bits);
  out.buffer.data = static_cast<char *>(tensor.data) + tensor.byte_offset;
  setShape(out, static_cast<size_t>(tensor.ndim), tensor.shape);
  checkGaps(out, tensor.strides);
}

/// https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html
void fromInterface(Argument &out, nb::dict interface) {
  const std::string type = nb::cast<std::string>(interface["typestr"]);
  static constexpr struct {
    const char *name;
    int code, bits;
  } types[] = {{"<i4", 0, 32}, {"<i8", 0, 64}, {"<f4", 2, 32}, {"<f2", 2, 16}, {"|b1", 6, 8}};
  const auto *found = std::find_if(std::begin(types), std::end(types), [&](const auto &t) { return type == t.name; });
  const bool known = found != std::end(types);
  out.buffer.type = elementType(out.buffer.name, known ? found->code : -1, known ? found->bits : 0);
  out.buffer.data = reinterpret_cast<void *>(nb::cast<uintptr_t>(nb::cast<nb::tuple>(interface["data"])[0]));
  std::vector<int64_t> shape, strides;
  for (nb::handle size : nb::cast<nb::tuple>(interface["shape"]))
    shape.push_back(nb::cast<int64_t>(size));
  setShape(out, shape.size(), shape.data());
  if (interface.contains("strides") && !interface["strides"].is_none())
    for (nb::handle stride : nb::cast<nb::tuple>(interface["strides"]))
      strides.push_back(nb::cast<int64_t>(stride) * 8 / found->bits);
  checkGaps(out, strides.empty() ? nullptr : strides.data());
}

void read(Argument &out, nb::handle value, bool onGpu, int ordinal) {
  PyTypeObject *type = Py_TYPE(value.ptr());
  if (const ExchangeApi *api = exchangeOf(type)) {
    Tensor tensor;
    if (api->tensorFromObject(value.ptr(), &tensor) != 0)
      throw nb::python_error();
    return fromTensor(out, tensor, onGpu, ordinal);
  }
  if (onGpu && nb::hasattr(value, "__cuda_array_interface__"))
    return fromInterface(out, nb::cast<nb::dict>(value.attr("__cuda_array_interface__")));
  nb::ndarray<> array;
  if (!nb::try_cast(value, array, false))
    refuse(out.buffer.name, "is no array: it takes what has DLPack or `__cuda_array_interface__`");
  Tensor tensor = {};
  std::array<int64_t, 8> shape, strides;
  if (array.ndim() > shape.size())
    refuse(out.buffer.name, "has too many dimensions");
  for (size_t d = 0; d < array.ndim(); ++d) {
    shape[d] = static_cast<int64_t>(array.shape(d));
    strides[d] = array.stride(d);
  }
  tensor.data = array.data();
  tensor.device = {array.device_type(), array.device_id()};
  tensor.ndim = static_cast<int32_t>(array.ndim());
  tensor.dtype = array.dtype();
  tensor.shape = shape.data();
  tensor.strides = strides.data();
  out.owner = nb::cast(array);
  fromTensor(out, tensor, onGpu, ordinal);
}

/// The stream on which the library of the tensors puts its work; null: the default one.
void *currentStream(nb::dict buffers, int ordinal) {
  for (auto [name, value] : buffers)
    if (const ExchangeApi *api = exchangeOf(Py_TYPE(value.ptr())); api && api->currentStream) {
      void *stream = nullptr;
      if (api->currentStream(kCuda, ordinal, &stream) != 0)
        throw nb::python_error();
      return stream;
    }
  return nullptr;
}

void call(LoadedKernel &k, nb::dict buffers, nb::handle stream, bool perStage, int ordinal) {
  const bool onGpu = k.kernel.device() == Device::Cuda;
  std::array<Argument, 32> few;
  std::vector<Argument> many;
  const size_t count = buffers.size();
  if (count > few.size())
    many.resize(count);
  Argument *all = count > few.size() ? many.data() : few.data();
  std::array<CallBuffer, 32> fewBuffers;
  std::vector<CallBuffer> manyBuffers(count > fewBuffers.size() ? count : 0);
  CallBuffer *given = count > fewBuffers.size() ? manyBuffers.data() : fewBuffers.data();
  size_t i = 0;
  for (auto [name, value] : buffers) {
    Py_ssize_t length = 0;
    const char *text = PyUnicode_AsUTF8AndSize(name.ptr(), &length);
    if (!text)
      throw nb::python_error();
    Argument &argument = all[i];
    argument.buffer.name = {text, static_cast<size_t>(length)};
    read(argument, value, onGpu, ordinal);
    given[i++] = argument.buffer;
  }
  CallOptions options;
  options.perStage = perStage;
  if (onGpu)
    options.stream =
        stream.is_none() ? currentStream(buffers, ordinal) : reinterpret_cast<void *>(nb::cast<uintptr_t>(stream));
  const Hold hold(*k.mutex);
  if (onGpu)
    return (void)take(k.kernel.call(given, count, options));
  const nb::gil_scoped_release release;
  auto status = k.kernel.call(given, count, options);
  const nb::gil_scoped_acquire acquire;
  take(std::move(status));
}

void check(LoadedKernel &k, nb::handle stream) {
  void *of = stream.is_none() ? nullptr : reinterpret_cast<void *>(nb::cast<uintptr_t>(stream));
  const Hold hold(*k.mutex);
  auto status = [&] {
    const nb::gil_scoped_release release;
    return k.kernel.check(of);
  }();
  take(std::move(status));
}
} // namespace

void bindCalls(nb::module_ &module) {
  module.def("call", call, nb::arg("kernel"), nb::arg("buffers"), nb::arg("stream").none(), nb::arg("per_stage"),
             nb::arg("ordinal"));
  module.def("check", check, nb::arg("kernel"), nb::arg("stream").none());
}

} // namespace megalith::python
