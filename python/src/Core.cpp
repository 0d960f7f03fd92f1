//===- Core.cpp - the module, values and errors ---------------------------===//
#include "Core.h"

namespace megalith::python {

static nb::str decoded(const std::string &bytes, const char *errors) {
  return nb::steal<nb::str>(PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), errors));
}

nb::str text(const std::string &bytes) { return decoded(bytes, "backslashreplace"); }
nb::str pathText(const std::string &bytes) { return decoded(bytes, "surrogateescape"); }

std::string bytesOf(nb::handle value) {
  if (!PyUnicode_Check(value.ptr()))
    throw nb::type_error("expected a str");
  nb::object bytes = nb::steal(PyUnicode_AsEncodedString(value.ptr(), "utf-8", "surrogateescape"));
  if (!bytes.is_valid())
    throw nb::python_error();
  return std::string(PyBytes_AS_STRING(bytes.ptr()), static_cast<size_t>(PyBytes_GET_SIZE(bytes.ptr())));
}

nb::list texts(const std::vector<std::string> &list) {
  nb::list out;
  for (const std::string &each : list)
    out.append(text(each));
  return out;
}

static nb::str shown(const std::string &value) { return text(value); }
static int64_t shown(int64_t value) { return value; }

void put(const RequestEnd &end, nb::dict out) {
#define END(Type, Name, Snake, Text) out[#Snake] = shown(end.Name);
#include "megalith/RequestEnd.def"
  out["place"] = pathText(end.place);
}

nb::object member(nb::dict options, const char *name) {
  PyObject *value = PyDict_GetItemString(options.ptr(), name);
  return value ? nb::borrow(value) : nb::none();
}

void read(nb::dict options, const char *name, std::string &out) {
  if (nb::object value = member(options, name); !value.is_none())
    out = bytesOf(value);
}

void read(nb::dict options, const char *name, std::vector<std::string> &out) {
  if (nb::object list = member(options, name); !list.is_none())
    for (nb::handle each : list)
      out.push_back(bytesOf(each));
}

void read(nb::dict options, const char *name, std::vector<std::pair<std::string, std::string>> &out) {
  if (nb::object pairs = member(options, name); !pairs.is_none())
    for (nb::handle each : pairs)
      out.emplace_back(bytesOf(each[0]), bytesOf(each[1]));
}

void read(nb::dict options, const char *name, std::function<void(const std::string &)> &out) {
  nb::object callable = member(options, name);
  if (callable.is_none())
    return;
  std::shared_ptr<nb::object> held(new nb::object(std::move(callable)), [](nb::object *object) {
    if (!nb::is_alive())
      return;
    const nb::gil_scoped_acquire acquire;
    delete object;
  });
  out = [held](const std::string &what) {
    const nb::gil_scoped_acquire acquire;
    try {
      (*held)(text(what));
    } catch (nb::python_error &error) { // nobody could take it here
      error.discard_as_unraisable(*held);
    }
  };
}

static InputValue inputOf(const std::string &name, nb::handle value) {
  if (PyBool_Check(value.ptr()))
    return value.ptr() == Py_True;
  if (PyLong_Check(value.ptr()))
    return valueOf<int64_t>(value, "inputs." + name);
  if (PyFloat_Check(value.ptr()))
    return nb::cast<double>(value);
  const auto isReal = [](nb::handle array) { return nb::cast<std::string>(array.attr("dtype").attr("kind")) == "f"; };
  const auto rowsOf = [&]<class Number>(std::vector<std::vector<Number>> rows) {
    for (nb::handle row : value)
      rows.push_back(valuesOf<Number>(row));
    return rows;
  };
  if (PyList_Check(value.ptr())) // rows of a table, which are of one kind
    return nb::len(value) > 0 && isReal(value[0]) ? InputValue(rowsOf(std::vector<std::vector<float>>()))
                                                  : InputValue(rowsOf(std::vector<std::vector<int32_t>>()));
  if (isReal(value))
    return valuesOf<float>(value);
  return valuesOf<int32_t>(value);
}

static nb::object objectOf(const InputValue &value) {
  return std::visit(
      [](const auto &v) -> nb::object {
        if constexpr (requires { v[0].size(); }) {
          nb::list rows;
          for (const auto &row : v)
            rows.append(arrayOf(row));
          return rows;
        } else if constexpr (requires { v.size(); }) {
          return arrayOf(v);
        } else {
          return nb::cast(v);
        }
      },
      value);
}

/// (tick, ms)
static When whenOf(nb::handle pair, const std::string &name) {
  return {valueOf<int64_t>(pair[0], name), valueOf<int64_t>(pair[1], name)};
}

Request requestOf(nb::dict r) {
  Request out;
  nb::object id = member(r, "id");
  out.id = PyLong_Check(id.ptr()) ? RequestId::ofInteger(bytesOf(nb::str(id))) : RequestId(bytesOf(id));
  out.tokens = valuesOf<int32_t>(member(r, "tokens"));
#define REQUEST(Type, Name, Snake, Default, Text) read(r, #Snake, out.Name);
#define SAMPLING(Type, Name, Snake, Default, Text) read(r, #Snake, out.sampling.Name);
#define EDIT(...) SAMPLING(__VA_ARGS__)
#include "megalith/Request.def"
  if (nb::object eos = member(r, "eos"); !eos.is_none())
    out.eos = valuesOf<int32_t>(eos);
  if (nb::object stop = member(r, "stop"); !stop.is_none())
    for (nb::handle sequence : stop)
      out.stop.push_back(valuesOf<int32_t>(sequence));
  out.sampling.banned = valuesOf<int32_t>(member(r, "banned"));
  if (nb::object allowed = member(r, "allowed"); !allowed.is_none())
    out.sampling.allowed = valuesOf<int32_t>(allowed);
  out.sampling.format = bytesOf(member(r, "format"));
  for (auto [token, number] : nb::cast<nb::dict>(member(r, "bias")))
    out.sampling.bias.emplace(valueOf<int32_t>(nb::borrow(token), "bias"), valueOf<float>(nb::borrow(number), "bias"));
  if (nb::object seed = member(r, "seed"); !seed.is_none())
    out.sampling.seed = valueOf<uint32_t>(seed, "seed");
  if (nb::object inputs = member(r, "inputs"); !inputs.is_none())
    for (auto [name, value] : nb::cast<nb::dict>(inputs))
      out.inputs.emplace(bytesOf(name), inputOf(bytesOf(name), value));
  if (nb::object when = member(r, "arrives"); !when.is_none())
    out.arrives = whenOf(when, "arrives");
  if (nb::object when = member(r, "cancelled"); !when.is_none())
    out.cancelled = whenOf(when, "cancelled");
  read(r, "file", out.file);
  read(r, "line", out.line);
  return out;
}

nb::dict dictOf(const Request &r) {
  nb::dict out, inputs;
  out["id"] = r.id.isInteger ? nb::int_(text(r.id.text)) : nb::object(text(r.id.text));
  out["prompt"] = arrayOf(r.tokens);
#define REQUEST(Type, Name, Snake, Default, Text) out[#Snake] = r.Name;
#define SAMPLING(Type, Name, Snake, Default, Text) out[#Snake] = r.sampling.Name;
#define EDIT(...) SAMPLING(__VA_ARGS__)
#include "megalith/Request.def"
  out["eos"] = r.eos ? arrayOf(*r.eos) : nb::none();
  nb::list stop;
  for (const std::vector<int32_t> &sequence : r.stop)
    stop.append(arrayOf(sequence));
  out["stop"] = stop;
  out["seed"] = r.sampling.seed ? nb::cast(*r.sampling.seed) : nb::none();
  nb::dict bias;
  for (const auto &[token, number] : r.sampling.bias)
    bias[nb::int_(token)] = number;
  out["bias"] = bias;
  out["banned"] = arrayOf(r.sampling.banned);
  out["format"] = r.sampling.format.empty() ? nb::none() : nb::object(text(r.sampling.format));
  out["allowed"] = r.sampling.allowed ? arrayOf(*r.sampling.allowed) : nb::none();
  for (const auto &[name, value] : r.inputs)
    inputs[text(name)] = objectOf(value);
  out["inputs"] = inputs;
  out["arrives"] = r.arrives == When() ? nb::none() : nb::object(nb::make_tuple(r.arrives.tick, r.arrives.ms));
  out["cancelled"] =
      r.cancelled ? nb::object(nb::make_tuple(r.cancelled->tick, r.cancelled->ms)) : nb::object(nb::none());
  out["_place"] = nb::make_tuple(r.file, r.line);
  return out;
}

nb::list listOf(const std::vector<Input> &inputs) {
  nb::list out;
  for (const Input &input : inputs) {
    nb::dict one;
    one["name"] = text(input.name);
    one["type"] = text(input.type);
    one["capacity"] = input.capacity ? nb::cast(*input.capacity) : nb::none();
    one["rows"] = input.rows ? nb::cast(*input.rows) : nb::none();
    one["least"] = input.least;
    one["most"] = input.most;
    one["default"] = input.otherwise ? objectOf(*input.otherwise) : nb::none();
    one["required"] = !input.otherwise;
    one["spelling"] = text(input.spelling());
    out.append(one);
  }
  return out;
}

/// A class of megalith._errors.
static nb::object errorClass(const char *name) { return nb::module_::import_("megalith._errors").attr(name); }

nb::object objectOf(const Error &error) {
  nb::list notes;
  for (const Note &note : error.notes)
    notes.append(errorClass("Note")(text(note.message), pathText(note.file), note.line, note.column));
  return errorClass("Message")(text(error.kind), text(error.message), pathText(error.file), error.line, error.column,
                               error.length, notes, error.warning, text(error.text));
}

nb::list listOf(const Messages &messages) {
  nb::list out;
  for (const Error &error : messages.list)
    out.append(objectOf(error));
  return out;
}

[[noreturn]] static void raiseObject(nb::object error) {
  PyErr_SetObject(reinterpret_cast<PyObject *>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}

void raise(const Messages &messages) { raiseObject(errorClass("Error")(listOf(messages), text(messages.text()))); }

void raiseOutside(const std::string &name, nb::object least, nb::object most, nb::handle value) {
  raiseObject(errorClass("out_of_range")(name, least, most, value));
}

void raiseNot(const char *what, const std::string &name, nb::handle value) {
  throw nb::type_error(("`" + name + "` must be " + what + ", found " + nb::repr(value).c_str()).c_str());
}

} // namespace megalith::python

NB_MODULE(_core, module) {
  using namespace megalith::python;
  nanobind::set_leak_warnings(false); // a daemon thread that is cut off when the process ends keeps what it holds
  module.def("version", [] { return text(megalith::version()); });
  module.def("fault_text", [](const std::string &code) { return text(megalith::faultText(code)); });
  bindPrograms(module);
  bindKernels(module);
  bindCalls(module);
  bindLive(module);
}
