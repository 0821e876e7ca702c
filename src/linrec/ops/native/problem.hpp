// What a kernel is given: tensors by pointer and strides, nothing of torch.
#pragma once

#include <cstdint>

namespace linrec {

enum class DType { float32, bfloat16 };

// [batch, heads, positions, width]; the width is contiguous, strides are in elements
struct Rows {
  char* data = nullptr;
  int64_t batch = 0, head = 0, row = 0;
};

// A mechanism, as its class declares it: fields and values as in ops/rule.py, in the same order.
enum class FeatureMap { identity, elu, elu_plus_one };
enum class Normaliser { column_norm, count, row_sum, none };

struct Rule {
  FeatureMap feature_map;
  Normaliser normaliser;
  bool unit_queries, unit_keys, scaled, decay;
};

struct Problem {
  int64_t batch, heads, length, width;
  DType dtype;
  Rule rule;
  bool causal;
  Rows q, k, v, out;         // out: forward only
  Rows dout, dq, dk, dv;     // backward only
  const bool* keep;          // [batch, length], or null without padding
  const int64_t* counts;     // [batch]: how many events are kept; null without keep
  const int64_t* starts;     // [batch]: the first kept position if they are contiguous, else -1
  const int32_t* positions;  // [batch, length]: the kept positions in order, if not contiguous
  const float* decay;        // [heads] log g, or null
  double* ddecay;            // [batch, heads], or null
};

// Dropout draws 16 bits per number, and drops those below the threshold.
struct Draw {
  uint32_t low, high;  // the seed
  int32_t threshold;
  float scale;    // of the others
  int64_t first;  // the index of the first number, a multiple of 2 BLOCK
};

constexpr int BLOCK = 16;  // as in ops/dropout.py

constexpr int64_t MAX_WIDTH = 128;

// The scores of one target, and where to write its loss.
struct ScoreRow {
  char* scores;  // [size]
  DType dtype;
  int64_t size, label;    // the target's index in the row
  const int64_t* hidden;  // [n_hidden] items that do not compete
  int64_t n_hidden;
  int64_t first_item;  // the item of scores[0]
  float* wide;         // [size], unless the scores are float32
  float *total, *loss;
};

// The RMS norm of heads: [rows, heads, width] all, and scale [heads, width].
struct HeadNorm {
  const char *x, *dout;  // dout: backward only
  char* out;             // backward: the gradient of x
  DType dtype;
  const float* scale;
  int64_t heads;
  float epsilon;
};

// One direction of one head; `scratch` is how many floats of memory it needs.
struct Pass {
  int64_t (*scratch)(const Problem&);
  void (*run)(const Problem&, int64_t b, int64_t h, float* memory, int64_t floats);
};

struct StepStack;
struct StepEvent;
struct Linear;

// The code of one instruction set.
struct Kernels {
  const char* name;
  Pass forward, backward;
  void (*head_norm)(const HeadNorm&, int64_t begin, int64_t end);
  void (*head_norm_backward)(const HeadNorm&, int64_t begin, int64_t end, float* dscale);
  void (*cross_entropy)(const ScoreRow&);
  void (*dropout)(const char* x, char* out, DType dtype, int64_t begin, int64_t end, Draw draw);
  int tile;  // outputs in a tile of `Linear`
  void (*linear)(const Linear&, int rows, const float* x, int64_t x_row, float* y, int64_t y_row);
  void (*step)(const StepStack&, int rows, const StepEvent* events, char* const* states,
               float* hidden, float* scratch);
};

// Those of the newest instruction set of this CPU, for heads of this width.
const Kernels& kernels(int64_t width);

}  // namespace linrec
