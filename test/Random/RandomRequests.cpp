// What requests for random pipelines bring, once the pipeline is checked.
#include "RandomPipeline.h"
#include <algorithm>
#include <random>

namespace megalith::random_pipelines {

void bringInputs(std::vector<Request> &requests, const std::vector<Input> &declared, uint64_t seed) {
  std::mt19937_64 random(seed + 11);
  const auto range = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  const auto token = [&] { return range(0, kVocab - 1); };
  for (Request &request : requests)
    for (const Input &input : declared) {
      if (input.otherwise && range(0, 2) == 0)
        continue;
      InputValue value;
      if (input.capacity) {
        const int64_t most = range(0, 9) ? std::min<int64_t>(*input.capacity, 30) : *input.capacity;
        std::vector<int32_t> items(range(0, most));
        for (int32_t &item : items)
          item = static_cast<int32_t>(token());
        value = std::move(items);
      } else if (input.type == "i32") {
        value =
            range(0, 4) ? std::clamp<int64_t>(range(-9, 30), input.least, input.most) : range(input.least, input.most);
      } else if (input.type == "f32") {
        value = 0.25 * static_cast<double>(range(-9, 9));
      } else if (input.type == "bool") {
        value = range(0, 1) == 1;
      } else {
        value = token();
      }
      request.inputs[input.name] = std::move(value);
    }
}

void bringStops(std::vector<Request> &requests, const std::vector<std::vector<int32_t>> &generated, uint64_t seed) {
  std::mt19937_64 random(seed + 17);
  const auto below = [&](uint64_t n) { return static_cast<int64_t>(random() % n); };
  for (size_t i = 0; i < requests.size(); ++i)
    for (int64_t n = below(3); n > 0; --n) {
      const auto length = static_cast<int64_t>(1 + below(4)), count = static_cast<int64_t>(generated[i].size());
      std::vector<int32_t> stop(length, kVocab - 1);
      if (const int64_t begin = below(count + 1); begin + length <= count)
        std::copy_n(generated[i].begin() + begin, length, stop.begin());
      requests[i].stop.push_back(std::move(stop));
    }
}

void bringTimes(std::vector<Request> &requests, uint64_t seed) {
  std::mt19937_64 random(seed + 13);
  const auto below = [&](uint64_t n) { return static_cast<int64_t>(random() % n); };
  if (below(2))
    return;
  int64_t tick = below(3);
  for (Request &request : requests) {
    request.arrives.tick = tick;
    if (below(5) == 0)
      request.cancelled = When{tick + below(20), 0};
    if (below(5) == 0)
      request.deadlineMs = static_cast<int32_t>(1 + below(20));
    tick += below(4) ? below(5) : below(60);
  }
}

} // namespace megalith::random_pipelines
