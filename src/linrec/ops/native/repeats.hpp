// What the scores of past items gain, see layers/repeats.py: the formula in registers.
#pragma once

#include <cstdint>

namespace linrec {

constexpr int64_t MAX_HALF_LIVES = 16;

// Tensors as in `types.PastCounts`, for targets end to end.
struct Past {
  int64_t half_lives;      // K, of which the first `in_events` decay with later events
  int64_t in_events;       // and the others with seconds
  const float* rates;      // [K], 1 / half-life
  const float* sums;       // [Q, K]
  const int64_t* places;   // [Q]
  const double* times;     // [Q], or null
  const int64_t* newest;   // [P], rows of the above
  const int64_t* starts;   // [T], where the pairs of each target begin
  const int64_t* counts;   // [T]
  const int64_t* ends;     // [T]
  const double* moments;   // [T], or null
};

// Of one target: its weights [1 + K] to values [counts], or their gradient back to the weights.
struct RepeatKernels {
  void (*gains)(const Past&, int64_t target, const float* weights, float* values);
  void (*to_weights)(const Past&, int64_t target, const float* gradient, float* weights);
};

}  // namespace linrec
