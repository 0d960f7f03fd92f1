//===- Reducers.h - their numbers, by Reducers.def ------------------------===//
#pragma once

namespace megalith {

/// What is made of a row's logits.
enum class Reducer : unsigned char {
#define REDUCER(Id, ...) Id,
#include "Reducers.def"
};

} // namespace megalith
