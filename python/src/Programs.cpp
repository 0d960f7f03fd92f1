//===- Programs.cpp - compiling, and looking at checkpoints ---------------===//
#include "Core.h"
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

namespace megalith::python {

static ProgramOptions optionsOf(nb::dict from) {
  ProgramOptions out;
  read(from, "file", out.file);
  if (nb::object given = member(from, "texts"); !given.is_none())
    for (auto [path, content] : nb::cast<nb::dict>(given))
      out.texts.emplace(bytesOf(path), bytesOf(content));
  read(from, "models", out.models);
  read(from, "params", out.params);
  read(from, "profile", out.profile);
  read(from, "plan", out.plan);
  read(from, "accept", out.accept);
  read(from, "weights", out.weights);
  return out;
}

static nb::dict dictOf(const Source &source) {
  nb::dict out;
  out["cuda"] = text(source.cuda);
  out["control"] = nb::make_tuple(text(source.control.fileName), text(source.control.text));
  out["tensors"] = nb::make_tuple(text(source.tensors.fileName), text(source.tensors.text));
  if (source.wide)
    out["wide"] = nb::make_tuple(text(source.wide->fileName), text(source.wide->text));
  out["manifest"] = text(source.manifest);
  out["plan"] = text(source.plan);
  return out;
}

static nb::dict dictOf(const Binary &binary) {
  nb::dict out;
  out["code"] = nb::bytes(binary.code.data(), binary.code.size());
  out["ptx"] = text(binary.ptx);
  nb::list kernels;
  for (const Binary::Resources &r : binary.kernels) {
    nb::dict one;
    one["kernel"] = text(r.kernel);
    one["registers"] = r.registers;
    one["spill_stores"] = r.spillStores;
    one["spill_loads"] = r.spillLoads;
    one["stack_bytes"] = r.stackBytes;
    one["shared_bytes"] = r.sharedBytes;
    kernels.append(one);
  }
  out["kernels"] = kernels;
  out["milliseconds"] = binary.milliseconds;
  out["cache_hit"] = binary.cacheHit;
  out["how"] = text(binary.how);
  out["messages"] = listOf(binary.messages);
  return out;
}

static nb::dict dictOf(const Inspection::Shape &shape) {
  nb::dict out;
  out["layers"] = shape.layers;
  out["heads"] = shape.heads;
  out["kv_heads"] = shape.kvHeads;
  out["head_dim"] = shape.headDim;
  out["hidden"] = shape.hidden;
  out["vocabulary"] = shape.vocabulary;
  nb::dict others;
  for (const auto &[name, value] : shape.others)
    others[text(name)] = value;
  out["others"] = others;
  out["parameters"] = shape.parameters;
  out["weight_bytes"] = shape.weightBytes;
  out["formats"] = shape.formats;
  out["streamed_bytes"] = shape.streamedBytes;
  out["kv_bytes_per_token"] = shape.kvBytesPerToken;
  return out;
}

static nb::dict dictOf(const Inspection::Model &model) {
  nb::dict out;
  out["name"] = text(model.name);
  out["config"] = pathText(model.config);
  out["model_type"] = text(model.modelType);
  out["architectures"] = texts(model.architectures);
  out["file"] = pathText(model.file);
  out["where"] = text(model.where);
  out["candidates"] = model.candidates;
  out["graph"] = text(model.graph);
  out["numerics"] = text(model.numerics);
  out["shape"] = model.shape ? nb::object(dictOf(*model.shape)) : nb::object(nb::none());
  out["positions"] = model.positions ? nb::cast(*model.positions) : nb::none();
  nb::list keys;
  for (const Inspection::Key &key : model.keys) {
    nb::dict one;
    one["key"] = text(key.key);
    one["use"] = text(key.use);
    one["reason"] = text(key.reason);
    one["advice"] = text(key.advice);
    keys.append(one);
  }
  out["keys"] = keys;
  if (model.tensors) {
    nb::dict tensors, types;
    for (const auto &[type, count] : model.tensors->types)
      types[text(type)] = count;
    tensors["types"] = types;
    tensors["read"] = model.tensors->read;
    tensors["harmless"] = model.tensors->harmless;
    tensors["accepted"] = model.tensors->accepted;
    tensors["refused"] = model.tensors->refused;
    tensors["missing"] = model.tensors->missing;
    out["tensors"] = tensors;
  } else {
    out["tensors"] = nb::none();
  }
  out["accepted"] = texts(model.accepted);
  return out;
}

static nb::dict inspected(nb::dict from) {
  const ProgramOptions options = optionsOf(from);
  const Inspection found = take([&] {
    const nb::gil_scoped_release release;
    return inspect(options);
  }());
  nb::dict out;
  out["pipeline"] = pathText(found.pipeline);
  nb::list models;
  for (const Inspection::Model &model : found.models)
    models.append(dictOf(model));
  out["models"] = models;
  out["runs"] = found.runs;
  out["messages"] = listOf(found.messages);
  return out;
}

static CompiledProgram compiled(nb::dict from) {
  const ProgramOptions options = optionsOf(from);
  return {take([&] {
    const nb::gil_scoped_release release;
    return Program::compile(options);
  }())};
}

/// `f(program)`, alone.
template <class F> static auto of(F f) {
  return [f](CompiledProgram &p) { return alone(*p.mutex, [&] { return f(p.program); }); };
}

/// The same, of a text.
template <class F> static auto textOf(F f) {
  return [f](CompiledProgram &p) { return text(alone(*p.mutex, [&] { return f(p.program); })); };
}

static nb::list requestsOf(CompiledProgram &p, nb::handle from, bool isPath, const std::string &name) {
  const std::string bytes = bytesOf(from);
  nb::list out;
  for (const Request &request : take(alone(
           *p.mutex, [&] { return isPath ? p.program.readRequests(bytes) : p.program.parseRequests(bytes, name); })))
    out.append(dictOf(request));
  return out;
}

static nb::dict binaryOf(CompiledProgram &p, nb::dict from) {
  BinaryOptions options;
  read(from, "arch", options.arch);
  read(from, "ptx", options.ptx);
  read(from, "source_files", options.sourceFiles);
  read(from, "whole_kernel", options.wholeKernel);
  return dictOf(take(alone(*p.mutex, [&] { return p.program.binary(options); })));
}

void bindPrograms(nb::module_ &module) {
  module.def("inspect", inspected);
  module.def("compile", compiled);
  module.def("state_diagram", [](nb::dict from) {
    const ProgramOptions options = optionsOf(from);
    return text(take([&] {
      const nb::gil_scoped_release release;
      return stateDiagram(options);
    }()));
  });

  nb::class_<CompiledProgram>(module, "Program")
      .def("messages", [](CompiledProgram &p) { return listOf(alone(*p.mutex, [&] { return p.program.messages(); })); })
      .def("name", textOf([](Program &p) { return p.name(); }))
      .def("accepted", [](CompiledProgram &p) { return texts(alone(*p.mutex, [&] { return p.program.accepted(); })); })
      .def("model_files",
           [](CompiledProgram &p) {
             nb::dict out;
             for (const auto &[model, file] : alone(*p.mutex, [&] { return p.program.modelFiles(); }))
               out[text(model)] = pathText(file);
             return out;
           })
      .def("converted", of([](Program &p) { return p.converted(); }))
      .def("formats", of([](Program &p) { return p.formats(); }))
      .def("param", [](CompiledProgram &p,
                       const std::string &name) { return alone(*p.mutex, [&] { return p.program.param(name); }); })
      .def("vocabulary", of([](Program &p) { return p.vocabulary(); }))
      .def("logits_vocabulary", of([](Program &p) { return p.logitsVocabulary(); }))
      .def("reads_sampling", of([](Program &p) { return p.readsSampling(); }))
      .def("why_no_prompt_logprobs", textOf([](Program &p) { return p.whyNoPromptLogprobs(); }))
      .def("byte_vocabulary", of([](Program &p) { return p.byteVocabulary(); }))
      .def("set_token_bytes",
           [](CompiledProgram &p, nb::list bytes) {
             std::vector<std::string> all;
             for (nb::handle each : bytes) {
               const auto spelled = nb::cast<nb::bytes>(each);
               all.emplace_back(spelled.c_str(), spelled.size());
             }
             take(alone(*p.mutex, [&] { return p.program.setTokenBytes(std::move(all)); }));
           })
      .def("prepare_format",
           [](CompiledProgram &p, const std::string &format) {
             const Program::AnswerFormat made = take([&] { // beside a session
               const nb::gil_scoped_release release;
               return p.program.prepareFormat(format);
             }());
             nb::dict out;
             out["states"] = made.states;
             out["masks"] = made.masks;
             out["bytes"] = made.bytes;
             out["notes"] = texts(made.notes);
             return out;
           })
      .def("positions", of([](Program &p) { return p.positions(); }))
      .def("eos", of([](Program &p) { return p.eos(); }))
      .def("states",
           [](CompiledProgram &p) {
             nb::list out;
             for (const Program::RequestState &each : alone(*p.mutex, [&] { return p.program.states(); }))
               out.append(nb::make_tuple(text(each.name), each.slot, each.terminal));
             return out;
           })
      .def("inputs", [](CompiledProgram &p) { return listOf(alone(*p.mutex, [&] { return p.program.inputs(); })); })
      .def("config_file",
           [](CompiledProgram &p) { return pathText(alone(*p.mutex, [&] { return p.program.configFile(); })); })
      .def("ast", textOf([](Program &p) { return p.ast(); }))
      .def("ir",
           [](CompiledProgram &p, int part) {
             return text(alone(*p.mutex, [&] { return p.program.ir(static_cast<Program::Ir>(part)); }));
           })
      .def("source",
           [](CompiledProgram &p) { return dictOf(take(alone(*p.mutex, [&] { return p.program.source(); }))); })
      .def("binary", binaryOf)
      .def("requests", requestsOf)
      .def("files", [](CompiledProgram &p) {
        nb::list out;
        for (const Program::File &file : alone(*p.mutex, [&] { return p.program.files(); }))
          out.append(nb::make_tuple(text(file.of), pathText(file.path)));
        return out;
      });
}

} // namespace megalith::python
