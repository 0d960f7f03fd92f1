//===- LiveTimes.cpp - what measurements of live sessions compute ---------===//
#include "megalith/Tools.h"
#include <algorithm>
#include <cmath>

namespace megalith {

static uint32_t hash32(uint32_t x) { // as device/Sync.cuh
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  return x ^ (x >> 16);
}

std::vector<tools::OpenArrival> tools::openArrivals(size_t number, double perSecond, int64_t shortest, int64_t longest,
                                                    uint32_t seed) {
  std::vector<OpenArrival> out;
  double at = 0;
  for (size_t i = 0; i < number; ++i) {
    const auto draw = [&](uint32_t what) { return hash32((2 * uint32_t(i) + what) ^ hash32(seed + 1)); };
    const int64_t lengths = longest - shortest + 1;
    out.push_back({at, shortest + static_cast<int64_t>(draw(1)) % lengths});
    at -= std::log((double(draw(0)) + 0.5) * 0x1p-32) / perSecond;
  }
  return out;
}

std::vector<double> tools::afterFastest(const std::vector<TwoTimes> &seen) {
  if (seen.empty())
    return {};
  // Both clocks from the first pair on, so that doubles are exact enough.
  struct Point {
    double x, y;
  };
  std::vector<Point> points, hull;
  double mean = 0;
  for (const TwoTimes &s : seen) {
    const double x = double(int64_t(s.device - seen.front().device)) * 1e-3;
    points.push_back({x, s.host - seen.front().host - x});
    mean += x / double(seen.size());
  }
  std::vector<Point> sorted = points;
  std::sort(sorted.begin(), sorted.end(), [](Point a, Point b) { return a.x != b.x ? a.x < b.x : a.y < b.y; });
  for (const Point &p : sorted) {
    if (!hull.empty() && hull.back().x == p.x)
      continue;                                              // it is not below the other
    const auto above = [&](const Point &a, const Point &b) { // b is not below the line from a to p
      return (b.y - a.y) * (p.x - a.x) >= (p.y - a.y) * (b.x - a.x);
    };
    while (hull.size() > 1 && above(hull[hull.size() - 2], hull.back()))
      hull.pop_back();
    hull.push_back(p);
  }
  // The edge over the mean: of all lines below the points that one is nearest to them.
  size_t right = 0;
  while (right + 1 < hull.size() && hull[right].x <= mean)
    ++right;
  const Point &b = hull[right], &a = hull[right ? right - 1 : 0];
  const double slope = right ? (b.y - a.y) / (b.x - a.x) : 0;
  std::vector<double> out;
  for (const Point &p : points)
    out.push_back(std::max(0.0, p.y - a.y - slope * (p.x - a.x)));
  return out;
}

std::optional<double> tools::steadyRate(const std::vector<std::vector<TokensAt>> &requests) {
  double begin = -HUGE_VAL, end = HUGE_VAL;
  for (const std::vector<TokensAt> &request : requests) {
    if (request.empty())
      return std::nullopt;
    begin = std::max(begin, request.front().at);
    end = std::min(end, request.back().at);
  }
  int64_t tokens = 0;
  for (const std::vector<TokensAt> &request : requests)
    for (const TokensAt &piece : request)
      if (piece.at > begin && piece.at <= end)
        tokens += piece.tokens;
  return tokens > 0 ? std::optional(double(tokens) / (end - begin)) : std::nullopt;
}

} // namespace megalith
