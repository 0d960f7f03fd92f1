//===- Kernels.cpp - loading, and batches of requests ---------------------===//
#include "Core.h"
#include <algorithm>
#include <atomic>
#include <future>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

namespace megalith::python {

static constexpr std::pair<const char *, Device> devices[] = {
    {"auto", Device::Auto}, {"cuda", Device::Cuda}, {"cpu", Device::Cpu}, {"reference", Device::Reference}};
static constexpr std::pair<const char *, Control> controls[] = {
    {"resident", Control::Resident}, {"host", Control::Host}, {"graph", Control::Graph}};

/// What `name` says in the table.
template <class T, size_t N>
static void choose(nb::dict options, const char *name, const std::pair<const char *, T> (&table)[N], T &out) {
  std::string said;
  read(options, name, said);
  if (said.empty())
    return;
  std::string all;
  for (const auto &[word, value] : table) {
    if (said == word) {
      out = value;
      return;
    }
    all += (all.empty() ? "'" : ", '") + std::string(word) + "'";
  }
  throw nb::value_error((std::string(name) + " must be one of " + all + ", found '" + said + "'").c_str());
}

static LoadedKernel load(CompiledProgram &p, nb::dict from) {
  KernelOptions options;
  choose(from, "device", devices, options.device);
  read(from, "ordinal", options.ordinal);
  read(from, "source_files", options.sourceFiles);
  read(from, "whole_kernel", options.wholeKernel);
  read(from, "cpu_arch", options.cpuArch);
  read(from, "check", options.check);
  read(from, "progress", options.progress);
  return {take(alone(*p.mutex, [&] { return Kernel::load(p.program, options); })), p.mutex};
}

static RunOptions optionsOf(nb::dict from) {
  RunOptions out;
#define NUMBER(Type, Name, Snake, Default, Least, Most, Text) read(from, #Snake, out.Name);
#define FLAG(Name, Snake, Text) read(from, #Snake, out.Name);
#define TEXT(Name, Snake, Text) read(from, #Snake, out.Name);
#include "megalith/RunOptions.def"
  choose(from, "control", controls, out.control);
  read(from, "progress", out.progress);
  if (nb::object seed = member(from, "shuffle_pages"); !seed.is_none())
    out.shufflePages = valueOf<uint64_t>(seed, "shuffle_pages");
  return out;
}

/// `vocabulary`: below 0, no logits were wanted.
static nb::dict dictOf(RequestResult &&r, int64_t vocabulary) {
  nb::dict out, gauges;
  out["id"] = r.id.isInteger ? nb::int_(text(r.id.text)) : nb::object(text(r.id.text));
  const size_t generated = r.tokens.size();
  out["tokens"] = arrayOf(std::move(r.tokens));
  put(r, out);
  out["arrived"] = r.times.arrived;
  out["admitted"] = r.times.admitted;
  std::vector<double> appended;
  std::vector<int32_t> appends;
  for (const RequestTimes::Append &append : r.times.appends) {
    appended.push_back(append.at);
    appends.push_back(append.tokens);
  }
  out["append_times"] = arrayOf(std::move(appended));
  out["append_tokens"] = arrayOf(std::move(appends));
  if (vocabulary >= 0 && r.logits.size() == generated * size_t(vocabulary))
    out["logits"] = arrayOf(std::move(r.logits), {generated, size_t(vocabulary)});
  else
    out["logits"] = nb::none();
  for (auto &[name, values] : r.gauges)
    gauges[text(name)] = arrayOf(std::move(values));
  out["gauges"] = gauges;
  out["error"] = r.error ? objectOf(*r.error) : nb::none();
  return out;
}

static nb::dict dictOf(const HostCalls &calls) {
  nb::dict out;
  out["launches"] = calls.launches;
  out["graph_launches"] = calls.graphLaunches;
  out["synchronizations"] = calls.synchronizations;
  out["copies"] = calls.copies;
  out["bytes"] = calls.bytes;
  return out;
}

/// Runs the batch on a thread of its own: signals of Python come to this one, and end the run.
static Results runToEnd(LoadedKernel &k, std::vector<Request> batch, RunOptions options) {
  std::atomic<bool> isOver = false; // outlives the thread
  options.interrupted = [&] { return isOver.load(); };
  const auto work = [&] { return k.kernel.run(std::move(batch), options); };
  std::future<Expected<Results>> running = std::async(std::launch::async, work);
  const auto wait = [&](std::chrono::milliseconds patience) {
    const nb::gil_scoped_release release;
    return running.wait_for(patience) == std::future_status::ready;
  };
  while (!wait(std::chrono::milliseconds(50)))
    if (PyErr_CheckSignals() != 0) {
      nb::python_error signal; // what the handler raised; progress may call Python meanwhile
      isOver = true;
      while (!wait(std::chrono::hours(1)))
        ;
      throw signal;
    }
  return take(running.get());
}

static nb::dict run(LoadedKernel &k, nb::list requests, nb::dict from, int64_t vocabulary) {
  const RunOptions options = optionsOf(from);
  std::vector<Request> batch;
  for (nb::handle request : requests)
    batch.push_back(requestOf(nb::cast<nb::dict>(request)));
  const Hold hold(*k.mutex);
  Results results = runToEnd(k, std::move(batch), options);

  nb::dict out;
  nb::list each;
  for (RequestResult &result : results.requests)
    each.append(dictOf(std::move(result), options.logits ? vocabulary : -1));
  out["requests"] = each;
  nb::dict metrics;
  for (const auto &[name, value] : results.metrics)
    metrics[text(name)] = value;
  out["metrics"] = metrics;
  out["ticks"] = results.ticks;
  out["passes"] = results.passes;
  out["rows"] = results.rows;
  out["launches"] = results.launches;
  out["calls"] = dictOf(results.calls);
  out["milliseconds"] = results.milliseconds;
  out["tick_times"] = arrayOf(std::move(results.tickTimes));
  out["trace"] = options.trace ? nb::object(text(results.trace)) : nb::object(nb::none());
  out["messages"] = listOf(results.messages);
  return out;
}

/// `f(kernel)`, alone.
template <class F> static auto of(F f) {
  return [f](LoadedKernel &k) { return alone(*k.mutex, [&] { return f(k.kernel); }); };
}

void bindKernels(nb::module_ &module) {
  module.def("load", load);
  module.def("run", run);

  nb::class_<LoadedKernel>(module, "Kernel")
      .def("messages", [](LoadedKernel &k) { return listOf(alone(*k.mutex, [&] { return k.kernel.messages(); })); })
      .def("device", of([](Kernel &k) -> std::string {
             return std::find_if(std::begin(devices), std::end(devices),
                                 [&](const auto &each) { return each.second == k.device(); })
                 ->first;
           }))
      .def("device_name", [](LoadedKernel &k) { return text(alone(*k.mutex, [&] { return k.kernel.deviceName(); })); })
      .def("compile_ms", of([](Kernel &k) { return k.compileMilliseconds(); }))
      .def("load_ms", of([](Kernel &k) { return k.loadMilliseconds(); }))
      .def("weights",
           [](LoadedKernel &k) {
             const LoadedWeights weights = alone(*k.mutex, [&] { return k.kernel.weights(); });
             nb::dict out;
             out["milliseconds"] = weights.milliseconds;
             out["bytes"] = weights.bytes;
             out["packed_bytes"] = weights.packedBytes;
             out["row_bytes"] = weights.rowBytes;
             return out;
           })
      .def("cache_hit", of([](Kernel &k) { return k.cacheHit(); }))
      .def("how", of([](Kernel &k) { return k.how(); }))
      .def("cuda", [](LoadedKernel &k) { return text(alone(*k.mutex, [&] { return k.kernel.source().cuda; })); });
}

} // namespace megalith::python
