// Kernels that take numbers row by row and know nothing of attention: the softmax of a loss, the
// norm of a head, dropout.
#pragma once

#include <math.h>

#include <cstdint>

#include "features.hpp"
#include "head.hpp"
#include "problem.hpp"

namespace linrec::LINREC_ISA {

LINREC_INLINE float to_float(float x) { return x; }
LINREC_INLINE float to_float(uint16_t x) { return bfloat16_to_float(x); }
LINREC_INLINE void store(float* to, float x) { *to = x; }
LINREC_INLINE void store(uint16_t* to, float x) { *to = float_to_bfloat16(x); }

// x becomes exp(x - largest).
LINREC_INLINE void exponentials(float* x, int64_t size, float* largest, float* total) {
  constexpr int L = 32;
  float top = -INFINITY, tops[L], sums[L] = {};
  for (int l = 0; l < L; ++l) tops[l] = top;
  int64_t i = 0;
  for (; i + L <= size; i += L)
    for (int l = 0; l < L; ++l) tops[l] = x[i + l] > tops[l] ? x[i + l] : tops[l];
  for (; i < size; ++i) top = x[i] > top ? x[i] : top;
  for (int l = 0; l < L; ++l) top = tops[l] > top ? tops[l] : top;
  for (i = 0; i + L <= size; i += L)
    for (int l = 0; l < L; ++l) {
      const Exponential e = exponential(x[i + l] - top);
      x[i + l] = e.power * e.rest + e.power;
      sums[l] += x[i + l];
    }
  float rest = 0;
  for (; i < size; ++i) {
    const Exponential e = exponential(x[i] - top);
    rest += x[i] = e.power * e.rest + e.power;
  }
  *largest = top;
  *total = sum<L>(sums) + rest;
}

// The gradient of a row's cross-entropy, times the sum of its exponentials, in place of its scores.
// `wide` has room for the row in float32; for scores in float32 it is the row itself.
template <typename Number>
LINREC_INLINE void cross_entropy_of(Number* scores, float* wide, const ScoreRow& row) {
  if (static_cast<void*>(wide) != static_cast<void*>(scores))
    for (int64_t i = 0; i < row.size; ++i) wide[i] = to_float(scores[i]);
  const float right = wide[row.label];
  for (int64_t i = 0; i < row.n_hidden; ++i) wide[row.hidden[i] - row.first_item] = -INFINITY;
  wide[row.label] = right;  // the target always counts, seen before or not
  float largest, total;
  exponentials(wide, row.size, &largest, &total);
  *row.loss = logf(total) + largest - right;
  *row.total = total;
  wide[row.label] -= total;  // before rounding
  if (static_cast<void*>(wide) != static_cast<void*>(scores))
    for (int64_t i = 0; i < row.size; ++i) store(scores + i, wide[i]);
}

void cross_entropy(const ScoreRow& row) {
  if (row.dtype == DType::float32)
    cross_entropy_of(reinterpret_cast<float*>(row.scores), reinterpret_cast<float*>(row.scores),
                     row);
  else
    cross_entropy_of(reinterpret_cast<uint16_t*>(row.scores), row.wide, row);
}

template <int D, typename Number>
LINREC_INLINE void read_head(const Number* from, float* to) {
  for (int i = 0; i < D; ++i) to[i] = to_float(from[i]);
}

template <int D>
LINREC_INLINE float product(const float* a, const float* b) {
  float each[D];
  for (int i = 0; i < D; ++i) each[i] = a[i] * b[i];
  return sum<D>(each);
}

// out = x / sqrt(mean(x^2) + epsilon) * scale, for every head of the rows begin to end - 1.
template <int D, typename Number>
void head_norm_of(const HeadNorm& p, int64_t begin, int64_t end) {
  const Number* x = reinterpret_cast<const Number*>(p.x);
  Number* out = reinterpret_cast<Number*>(p.out);
  alignas(64) float row[D];
  for (int64_t t = begin * p.heads; t < end * p.heads; ++t) {
    const float* scale = p.scale + t % p.heads * D;
    read_head<D>(x + t * D, row);
    const float size = 1.0f / sqrtf(product<D>(row, row) / D + p.epsilon);
    for (int i = 0; i < D; ++i) store(out + t * D + i, row[i] * size * scale[i]);
  }
}

// dx = size (g - x size^2 mean(g x)) with g = dout scale, and the rows' share of the scale's
// gradient, which is added to dscale.
template <int D, typename Number>
void head_norm_backward_of(const HeadNorm& p, int64_t begin, int64_t end, float* dscale) {
  const Number* x = reinterpret_cast<const Number*>(p.x);
  const Number* dout = reinterpret_cast<const Number*>(p.dout);
  Number* dx = reinterpret_cast<Number*>(p.out);
  alignas(64) float row[D], gradient[D];
  for (int64_t t = begin * p.heads; t < end * p.heads; ++t) {
    const int64_t head = t % p.heads * D;
    read_head<D>(x + t * D, row);
    read_head<D>(dout + t * D, gradient);
    const float size = 1.0f / sqrtf(product<D>(row, row) / D + p.epsilon);
    for (int i = 0; i < D; ++i) {
      dscale[head + i] += gradient[i] * row[i] * size;
      gradient[i] *= p.scale[head + i];
    }
    const float share = product<D>(gradient, row) * size * size / D;
    for (int i = 0; i < D; ++i) store(dx + t * D + i, size * (gradient[i] - row[i] * share));
  }
}

template <int D>
void head_norm(const HeadNorm& p, int64_t begin, int64_t end) {
  if (p.dtype == DType::float32)
    head_norm_of<D, float>(p, begin, end);
  else
    head_norm_of<D, uint16_t>(p, begin, end);
}

template <int D>
void head_norm_backward(const HeadNorm& p, int64_t begin, int64_t end, float* dscale) {
  if (p.dtype == DType::float32)
    head_norm_backward_of<D, float>(p, begin, end, dscale);
  else
    head_norm_backward_of<D, uint16_t>(p, begin, end, dscale);
}

LINREC_INLINE uint32_t mix_bits(uint32_t x) {  // every bit of x affects every bit of the result
  x = (x ^ (x >> 16)) * 0x21f0aaadu;
  x = (x ^ (x >> 15)) * 0x735a2d97u;
  return x ^ (x >> 15);
}

// Numbers begin to end - 1. The draw of each follows from the seed and its index, so that the
// backward pass can repeat it: ops/dropout.py has the same in torch. A counter decides on two
// numbers, BLOCK apart, so that no lanes have to be shuffled.
template <typename Number>
void dropout_of(const Number* x, Number* out, int64_t begin, int64_t end, Draw draw) {
  alignas(64) float weight[2 * BLOCK];
  const float scale = draw.scale;  // a copy: a load under a condition would prevent vectorisation
  for (int64_t i = begin; i < end; i += 2 * BLOCK) {
    const uint32_t first = static_cast<uint32_t>((draw.first + i) / 2);
    for (int l = 0; l < BLOCK; ++l) {
      const uint32_t bits = mix_bits(mix_bits((first + l) ^ draw.low) + draw.high);
      weight[l] = static_cast<int32_t>(bits & 0xffff) < draw.threshold ? 0.0f : scale;
      weight[BLOCK + l] = static_cast<int32_t>(bits >> 16) < draw.threshold ? 0.0f : scale;
    }
    if (end - i >= 2 * BLOCK)
      for (int l = 0; l < 2 * BLOCK; ++l) store(out + i + l, weight[l] * to_float(x[i + l]));
    else
      for (int l = 0; l < end - i; ++l) store(out + i + l, weight[l] * to_float(x[i + l]));
  }
}

void dropout(const char* x, char* out, DType dtype, int64_t begin, int64_t end, Draw draw) {
  if (dtype == DType::float32)
    dropout_of(reinterpret_cast<const float*>(x), reinterpret_cast<float*>(out), begin, end, draw);
  else
    dropout_of(reinterpret_cast<const uint16_t*>(x), reinterpret_cast<uint16_t*>(out), begin, end,
               draw);
}

}  // namespace linrec::LINREC_ISA
