// A model that advances users event by event: weights by pointer, nothing of torch.
#pragma once

#include <cstdint>

#include "problem.hpp"

namespace linrec {

constexpr int STEP_ROWS = 4;  // users that are advanced together, so that weights are read once
constexpr int STEP_TILE = 4;  // registers of outputs that a linear layer computes at once

// Weights in tiles of outputs, [out / tile, in, tile], and the bias padded with zeros like them:
// the inner loop reads one stream and needs no remainder.
struct Linear {
  int64_t in = 0, out = 0;
  const float *weight = nullptr, *bias = nullptr;
};

struct Norm {
  const float *weight = nullptr, *bias = nullptr;
  float epsilon = 0;
};

struct StepLayer {
  Linear project_in, project_out, widen, narrow;
  Linear gate;                       // without weights if the model has none
  Norm attention, feed_forward;
  const float* head_scale = nullptr;  // [heads, head width], or null without a norm of heads
  const float* kept = nullptr;        // [heads], the share g that one more event leaves, or null
};

// The state of a user: events seen (int64), then memory [H, D, D], column [H, D], count [H] and,
// with exponential keys, peak [H, D] of each layer.
struct StepStack {
  int64_t width = 0, heads = 0, positions = 0, depth = 0, inner = 0;
  bool pre_norm = false;
  bool exponential_keys = false;  // Efficient Attention; otherwise the rule holds
  Rule rule{};
  const float *item = nullptr, *position = nullptr;          // [items + 1, width], [positions, width]
  const float *previous = nullptr, *following = nullptr;     // [buckets, width], or null
  Norm norm, final_norm;                                     // final_norm: without weights if none
  const StepLayer* layers = nullptr;
};

struct StepEvent {
  int64_t item;
  int32_t previous, following;  // buckets of the gaps, if the model reads them
};

static inline int64_t padded(int64_t size) { return (size + 63) / 64 * 64; }

// Floats of memory that `step` needs.
static inline int64_t step_scratch(const StepStack& s) {
  return STEP_ROWS * (8 * padded(s.width) + padded(3 * s.width) + padded(s.inner));
}

}  // namespace linrec
