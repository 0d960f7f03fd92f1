#include "runtime/UnitFacts.h"
#include "device/Abi.h"
#include <cstddef>

namespace megalith::runtime {

static RuntimeError differs(const char *what, int a, const char *ofA, int b, const char *ofB) {
  return {"kernel-units", "the units of the kernel do not fit: " + std::string(what) + ": " + std::to_string(a) + " " +
                              ofA + ", " + std::to_string(b) + " " + ofB + "; compile both again"};
}

Failure checkUnits(const UnitFacts &control, const UnitFacts &tensors) {
#define UNIT_FACT(Name, Text)                                                                                          \
  if (control.Name != tensors.Name)                                                                                    \
    return differs(Text, control.Name, "in the control unit", tensors.Name, "in the tensor unit");
#define MODEL_FACT(Name, Text)                                                                                         \
  for (int i = 0; i < limits::models; ++i)                                                                             \
    if (control.Name[i] != tensors.Name[i])                                                                            \
      return differs(Text, control.Name[i], "in the control unit", tensors.Name[i], "in the tensor unit");
#include "device/UnitFacts.def"
  if (control.abi != abi::kAbiVersion)
    return differs("version of the binary interface", control.abi, "in the kernel", abi::kAbiVersion, "in the runtime");
  if (control.models < 1 || control.models > limits::models)
    return differs("models", control.models, "in the kernel", limits::models, "at most in the runtime");
  const int paramsBytes =
      static_cast<int>(offsetof(abi::HostParams, models) + control.models * sizeof(abi::ModelParams));
  if (control.paramsBytes != paramsBytes)
    return differs("bytes of the launch's parameters", control.paramsBytes, "in the kernel", paramsBytes,
                   "in the runtime");
  return std::nullopt;
}

} // namespace megalith::runtime
