//===- Inputs.h - the values of a request's inputs --------------*- C++ -*-===//
#ifndef MEGALITH_REQUESTS_INPUTS_H
#define MEGALITH_REQUESTS_INPUTS_H

#include "megalith/Request.h"
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace megalith {

/// What is wrong with the inputs of a request. The message continues after "request `a`: ".
struct InputProblem {
  std::string input; ///< which one; empty: one is missing
  std::string message;
};

/// Checks what `request` brings against what the pipeline declares. Tokens must be below `vocabSize`.
std::optional<InputProblem> checkInputs(const std::vector<Input> &declared, const Request &request, int64_t vocabSize);

/// Takes the values of the object `inputs` of a line of requests for what is `declared`. A text stands for its bytes
/// where `byteVocabulary` allows it. What they must be is checked by checkInputs().
std::optional<InputProblem> readInputs(const nlohmann::json &inputs, const std::vector<Input> &declared,
                                       bool byteVocabulary, Request &request);

/// Sequences as the rows of a table: of numbers, where one of them is; nullopt: one is no sequence.
std::optional<InputValue> tableOf(const std::vector<InputValue> &rows);

/// The value of an input as words of 32 bits: one of a scalar, those of the elements of a sequence; of a table how many
/// rows there are, the length of each, then the rows, each with room for its most. The request has been checked.
std::vector<int32_t> inputWords(const Input &input, const Request &request);
/// How many words it has at most; 0 of a scalar.
int64_t mostWords(const Input &input);
/// The words of each row of a table.
std::vector<std::vector<int32_t>> inputRows(const Input &input, const Request &request);
/// The value of an input as JSON: an f32 has a point.
nlohmann::ordered_json inputJson(const InputValue &value);
/// The same as a value of its type.
InputValue inputValue(const Input &input, const Request &request);

} // namespace megalith

#endif
