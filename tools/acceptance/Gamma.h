//===- Gamma.h - p-values of chi squared ----------------------------------===//
#pragma once

#include <cmath>

/// The upper regularised incomplete gamma function: Q(cells / 2, chi / 2) is the p-value.
inline double upperGamma(double a, double x) {
  if (x < a + 1) {
    double term = 1 / a, sum = term, n = a;
    while (term > sum * 1e-15)
      term *= x / ++n, sum += term;
    return 1 - sum * std::exp(-x + a * std::log(x) - std::lgamma(a));
  }
  double b = x + 1 - a, c = 1e300, d = 1 / b, h = d;
  for (int i = 1; i < 100000; ++i) {
    const double an = -i * (i - a);
    b += 2;
    d = 1 / (an * d + b);
    c = b + an / c;
    h *= d * c;
    if (std::fabs(d * c - 1) < 1e-15)
      break;
  }
  return h * std::exp(-x + a * std::log(x) - std::lgamma(a));
}
