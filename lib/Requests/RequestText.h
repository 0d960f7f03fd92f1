//===- RequestText.h - what a request brings, as JSON -----------*- C++ -*-===//
#ifndef MEGALITH_LIB_REQUESTS_REQUESTTEXT_H
#define MEGALITH_LIB_REQUESTS_REQUESTTEXT_H

#include "megalith/Requests/Inputs.h"
#include <nlohmann/json.hpp>

namespace megalith {

/// Numbers are the shortest decimals that name these f32.
nlohmann::ordered_json samplingJson(const Sampling &sampling);

} // namespace megalith
#endif
