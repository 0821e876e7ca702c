// What a kernel is given: tensors by pointer and strides, nothing of torch.
#pragma once

#include <cstdint>

namespace linrec {

enum class Number { float32, bfloat16 };

// [batch, heads, positions, width]; the width is contiguous, strides are in numbers
struct Rows {
  char* data = nullptr;
  int64_t batch = 0, head = 0, row = 0;
};

enum class Map { identity, elu, elu_plus_one };

// What queries are divided by: the root of count times energy, the root of the count, their own
// product with the sum of the keys, or nothing.
enum class Divisor { energy, count, rows, none };

// One mechanism of linrec.ops, as its feature maps and its normaliser.
struct Rule {
  Map map;
  bool unit_queries, unit_keys;
  Divisor divisor;
};

struct Problem {
  int64_t batch, heads, length, width;
  Number number;
  Rule rule;
  bool causal;
  Rows q, k, v, out;         // out: forward alone
  Rows dout, dq, dk, dv;     // backward alone
  const bool* keep;          // [batch, length], or null where nothing is padded
  const int64_t* counts;     // [batch]: how many are kept; null with keep
  const int64_t* starts;     // [batch]: where they begin if they are one run, or else -1
  const int32_t* places;     // [batch, length]: if they are not, first the kept positions, in order
  const float* decay;        // [heads] log g, or null
  double* ddecay;            // [batch, heads], or null
};

// What a dropout draws: 16 bits a number, and those below `dropped` are dropped.
struct Draw {
  uint32_t low, high;  // the seed
  int32_t dropped;
  float scale;  // of the others
};

constexpr int BLOCK = 16;  // as in ops/dropout.py

constexpr int64_t WIDEST = 128;

// One instruction set's code. `scratch` is how many floats a call for one head may use.
struct Kernels {
  const char* name;
  int64_t (*scratch)(const Problem&);
  void (*forward)(const Problem&, int64_t b, int64_t h, float* scratch);
  void (*backward)(const Problem&, int64_t b, int64_t h, float* scratch);
  void (*exponentials)(float* row, int64_t size, float* largest, float* whole);
  void (*dropout)(const float* x, float* to, int64_t begin, int64_t end, Draw draw);
};

}  // namespace linrec
