// Feature maps and normalisers for C positions at a time, and their gradients.
//
// All matrices are [C, D]. Loops run over constants, so that the compiler vectorises them; the rule
// is examined once for all C positions.
#pragma once

#include <math.h>
#include <string.h>

#include <cstdint>

#include "matrices.hpp"
#include "problem.hpp"

namespace linrec::LINREC_ISA {

constexpr float EPSILON = 1e-8f;  // as in ops/mechanism.py

// exp(x) = power (1 + rest) for x <= 0, with |rest| < 0.42
struct Exponential {
  float power, rest;
};

LINREC_INLINE Exponential exponential(float x) {
  x = x < -87.0f ? -87.0f : x;  // NaN stays NaN, whatever integer it is converted to
  const int32_t whole = static_cast<int32_t>(x * 1.44269504f - 0.5f);  // nearest: x <= 0
  const float n = static_cast<float>(whole);
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.98412698e-4f;
  p = p * r + 1.38888889e-3f;
  p = p * r + 8.33333333e-3f;
  p = p * r + 4.16666667e-2f;
  p = p * r + 1.66666667e-1f;
  p = p * r + 0.5f;
  p = p * r * r + r;
  const uint32_t bits = (static_cast<uint32_t>(whole) + 127u) << 23;
  float power;
  memcpy(&power, &bits, sizeof power);
  return {power, p};
}

// exp(x) - 1 for x <= 0, exact near zero too
LINREC_INLINE float exp_minus_one(float x) {
  const Exponential e = exponential(x);
  return e.power * e.rest + (e.power - 1.0f);
}

// No branch, so that loops over it vectorise; both halves let NaN through.
LINREC_INLINE float elu(float x) {
  return (x < 0 ? 0.0f : x) + exp_minus_one(x > 0 ? 0.0f : x);
}

// C rows of D numbers, at a fixed stride.
template <int D>
struct View {
  const float* data;
  int64_t row = D;

  View(const float* rows) : data(rows) {}
  View(const float* rows, int64_t stride) : data(rows), row(stride) {}
};

template <int D>
struct Features {
  static constexpr int SIZE = C * D;

  const Rule rule;
  const int width;
  // slope - value of an ELU below zero; infinite for the identity, whose slope is always 1
  const float lift = rule.feature_map == FeatureMap::elu            ? 1.0f
                     : rule.feature_map == FeatureMap::elu_plus_one ? 0.0f
                                                                    : INFINITY;
  const float scale = rule.scaled ? 1.0f / sqrtf(float(width)) : 1.0f;

  // The map of each number; zeros past the last position and past the width.
  LINREC_INLINE void apply_map(View<D> x, int count, float* to) const {
    if (rule.feature_map == FeatureMap::identity) {
      for (int c = 0; c < C; ++c) copy<D>(x.data + c * x.row, to + c * D);
      return;
    }
    for (int c = 0; c < C; ++c)
      for (int i = 0; i < D; ++i) to[c * D + i] = elu(x.data[c * x.row + i]);
    if (rule.feature_map == FeatureMap::elu) return;
    for (int c = 0; c < C; ++c)
      for (int i = 0; i < D; ++i) {
        const bool real = c < count && i < width;
        to[c * D + i] = real ? to[c * D + i] + 1.0f : 0.0f;
      }
  }

  // The map's slope where its value is `value`: both ELUs are exponentials up to where they are 1.
  LINREC_INLINE float slope_at(float value) const {
    const float power = value + lift;
    return power > 1 ? 1.0f : power;
  }

  // to = value times a factor per row: `norm`, divided by the row's L2 norm if `unit`
  static LINREC_INLINE void normalise(const float* value, bool unit, float norm, float* factor,
                                      float* to) {
    if (unit) {
      dots<C, D>(value, value, factor);
      for (int c = 0; c < C; ++c) factor[c] += EPSILON;
      inverse_roots<C>(factor);
      for (int c = 0; c < C; ++c) factor[c] *= norm;
    } else {
      for (int c = 0; c < C; ++c) factor[c] = norm;
    }
    scale_rows<C, D>(value, factor, to);
  }

  // dx, the gradient of y = normalise(map(x)), becomes that of x
  LINREC_INLINE void normalise_backward(const float* y, const float* factor, bool unit, float norm,
                                        float* dx) const {
    alignas(64) float along[C] = {}, inverse[C];
    if (unit) dots<C, D>(dx, y, along);  // the gradient of the norm removes what lies along y
    for (int c = 0; c < C; ++c) {
      along[c] /= norm * norm;
      inverse[c] = 1.0f / factor[c];
    }
    for (int c = 0; c < C; ++c)
      for (int i = 0; i < D; ++i) {
        const int at = c * D + i;
        const float slope = slope_at(y[at] * inverse[c]);
        dx[at] = (dx[at] - along[c] * y[at]) * factor[c] * slope;
      }
  }

  LINREC_INLINE void queries(View<D> q, int count, float* factor, float* u) const {
    alignas(64) float value[SIZE];
    apply_map(q, count, value);
    normalise(value, rule.unit_queries, scale, factor, u);
  }

  LINREC_INLINE void queries_backward(const float* u, const float* factor, float* dq) const {
    normalise_backward(u, factor, rule.unit_queries, scale, dq);
  }

  LINREC_INLINE void keys(View<D> k, int count, float* factor, float* f) const {
    alignas(64) float value[SIZE];
    if (!rule.unit_keys) return apply_map(k, count, f);
    apply_map(k, count, value);
    normalise(value, true, 1.0f, factor, f);
  }

  LINREC_INLINE void keys_backward(const float* f, const float* factor, float* dk) const {
    if (rule.unit_keys) normalise_backward(f, factor, true, 1.0f, dk);
    else
      for (int i = 0; i < SIZE; ++i) dk[i] *= slope_at(f[i]);
  }

  // What each key adds to the sums that the normaliser divides by.
  LINREC_INLINE void columns(const float* f, float* x) const {
    if (rule.normaliser == Normaliser::column_norm)
      for (int i = 0; i < SIZE; ++i) x[i] = f[i] * f[i];
    else
      copy<SIZE>(f, x);
  }

  // df += the gradient that came through `columns`
  LINREC_INLINE void columns_backward(const float* f, const float* dx, float* df) const {
    if (rule.normaliser == Normaliser::column_norm)
      for (int i = 0; i < SIZE; ++i) df[i] += 2.0f * f[i] * dx[i];
    else if (rule.normaliser == Normaliser::row_sum)
      add<SIZE>(dx, df);
  }

  // w = u divided by the normaliser of the sums z [C, D] and counts n [C]; column norms leave their
  // inverse
  LINREC_INLINE void divide(const float* u, const float* z, const float* n, float* inverse,
                            float* w) const {
    alignas(64) float by[C];
    switch (rule.normaliser) {
      case Normaliser::column_norm:
        for (int c = 0; c < C; ++c)
          for (int i = 0; i < D; ++i) inverse[c * D + i] = n[c] * z[c * D + i] + EPSILON;
        inverse_roots<SIZE>(inverse);
        for (int i = 0; i < SIZE; ++i) w[i] = u[i] * inverse[i];
        return;
      case Normaliser::count:
        for (int c = 0; c < C; ++c) by[c] = 1.0f / sqrtf(n[c] > 1 ? n[c] : 1.0f);
        return scale_rows<C, D>(u, by, w);
      case Normaliser::row_sum:
        dots<C, D>(u, z, by);
        for (int c = 0; c < C; ++c) by[c] = 1.0f / (by[c] + EPSILON);
        return scale_rows<C, D>(u, by, w);
      case Normaliser::none:
        return copy<SIZE>(u, w);
    }
  }

  // dw becomes the gradient of u; dz and dn get those of the sums
  LINREC_INLINE void divide_backward(const float* u, const float* w, const float* z, const float* n,
                    const float* inverse, float* dw, float* dz, float* dn) const {
    alignas(64) float by[C], along[C];
    zero(dn, C);
    switch (rule.normaliser) {
      case Normaliser::column_norm:
        for (int i = 0; i < SIZE; ++i) {
          dw[i] *= inverse[i];
          dz[i] = -0.5f * dw[i] * w[i] * inverse[i];
        }
        dots<C, D>(dz, z, dn);
        scale_rows<C, D>(dz, n, dz);
        return;
      case Normaliser::count:
        for (int c = 0; c < C; ++c) by[c] = 1.0f / sqrtf(n[c] > 1 ? n[c] : 1.0f);
        zero(dz, SIZE);
        return scale_rows<C, D>(dw, by, dw);
      case Normaliser::row_sum:
        dots<C, D>(u, z, by);
        dots<C, D>(dw, w, along);
        for (int c = 0; c < C; ++c) by[c] = 1.0f / (by[c] + EPSILON);
        for (int c = 0; c < C; ++c)
          for (int i = 0; i < D; ++i) {
            const int at = c * D + i;
            const float through = -along[c] * by[c];
            dz[at] = through * u[at];
            dw[at] = dw[at] * by[c] + through * z[at];
          }
        return;
      case Normaliser::none:
        return zero(dz, SIZE);
    }
  }
};

}  // namespace linrec::LINREC_ISA
