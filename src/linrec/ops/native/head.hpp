// One head of one sequence: loading and storing its rows, its decay, and the two steps that all
// forms of attention and of their gradients are made of.
#pragma once

#include "features.hpp"

namespace linrec::LINREC_ISA {

LINREC_INLINE float bfloat16_to_float(uint16_t x) {
  const uint32_t bits = static_cast<uint32_t>(x) << 16;
  float to;
  memcpy(&to, &bits, sizeof to);
  return to;
}

LINREC_INLINE uint16_t float_to_bfloat16(float x) {  // to nearest, ties to even
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  return (bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : static_cast<uint16_t>(rounded);
}

// Sums in ascending or descending order of positions. The chunk starts where the order enters it.
struct Direction {
  float from_start[C], to_end[C];  // the decay from the chunk's start, and to its end
  float inclusive[C * C], exclusive[C * C];  // intra-chunk weights, with the position itself or not
};

template <int D>
struct Head {
  static constexpr int SIZE = C * D;

  const Problem& p;
  const int64_t b, h;
  const Features<D> features{p.rule, static_cast<int>(p.width)};
  const int64_t start = p.keep ? p.starts[b] : 0;
  const int32_t* positions = start < 0 ? p.positions + b * p.length : nullptr;
  const int64_t count = p.keep ? p.counts[b] : p.length;  // padding is skipped
  const int64_t chunks = (count + C - 1) / C;
  const bool decays = p.decay != nullptr;
  const float g = decays ? expf(p.decay[h]) : 1.0f;
  float powers[C + 1];
  Direction ascending, descending;

  Head(const Problem& problem, int64_t batch, int64_t head) : p(problem), b(batch), h(head) {
    powers[0] = 1.0f;
    for (int c = 0; c < C; ++c) powers[c + 1] = powers[c] * g;
    for (int c = 0; c < C; ++c) {
      ascending.from_start[c] = powers[c + 1];
      descending.from_start[c] = powers[C - c];
      ascending.to_end[c] = powers[C - 1 - c];
      descending.to_end[c] = powers[c];
    }
    for (int c = 0; c < C; ++c)
      for (int m = 0; m < C; ++m) {
        const float weight = powers[c > m ? c - m : m - c];
        ascending.inclusive[c * C + m] = m <= c ? weight : 0.0f;
        ascending.exclusive[c * C + m] = m < c ? weight : 0.0f;
        descending.inclusive[c * C + m] = m >= c ? weight : 0.0f;
        descending.exclusive[c * C + m] = m > c ? weight : 0.0f;
      }
  }

  LINREC_INLINE int in_chunk(int64_t chunk) const {
    const int64_t left = count - chunk * C;
    return left < C ? static_cast<int>(left) : C;
  }

  LINREC_INLINE int64_t position(int64_t t) const { return positions ? positions[t] : start + t; }

  LINREC_INLINE int64_t offset(const Rows& rows, int64_t t) const {
    return b * rows.batch + h * rows.head + t * rows.row;
  }

  // Whether a chunk can be read in place: C rows of D float32 numbers at a fixed stride.
  LINREC_INLINE bool regular(int64_t chunk) const {
    return p.dtype == DType::float32 && p.width == D && !positions && in_chunk(chunk) == C;
  }

  // Rows of one chunk in place, or else copied to `buffer`, zeros past the last position and past
  // the width. The next chunk is prefetched: rows of a fused projection lie too far apart for the
  // CPU to predict.
  LINREC_INLINE View<D> load(const Rows& from, int64_t chunk, float* buffer, int ahead = 1) const {
    prefetch(from, chunk + ahead);
    if (regular(chunk))
      return {reinterpret_cast<const float*>(from.data) + offset(from, position(chunk * C)),
              from.row};
    const int rows = in_chunk(chunk);
    for (int c = 0; c < rows; ++c)
      read(from.data, offset(from, position(chunk * C + c)), buffer + c * D);
    zero(buffer + rows * D, (C - rows) * D);
    return buffer;
  }

  LINREC_INLINE void prefetch(const Rows& rows, int64_t chunk) const {
#if defined(__GNUC__)
    if (chunk < 0 || chunk >= chunks) return;
    const int64_t bytes = p.dtype == DType::float32 ? 4 : 2;
    const int count = in_chunk(chunk);
    for (int c = 0; c < count; ++c) {
      const char* row = rows.data + bytes * offset(rows, position(chunk * C + c));
      for (int at = 0; at < 4 * D; at += 64) __builtin_prefetch(row + at);
    }
#endif
  }

  LINREC_INLINE void store(const float* from, const Rows& to, int64_t chunk, int ahead = 1) const {
    prefetch(to, chunk + ahead);  // a line of memory is read before it is written
    if (regular(chunk)) {
      float* row = reinterpret_cast<float*>(to.data) + offset(to, position(chunk * C));
      for (int c = 0; c < C; ++c, row += to.row) copy<D>(from + c * D, row);
      return;
    }
    const int rows = in_chunk(chunk);
    for (int c = 0; c < rows; ++c)
      write(from + c * D, to.data, offset(to, position(chunk * C + c)));
  }

  // Padded positions get zeros.
  LINREC_INLINE void clear_padding(const Rows& to) const {
    if (!p.keep) return;
    const float nothing[D] = {};
    for (int64_t t = 0; t < p.length; ++t)
      if (!p.keep[b * p.length + t])
        write(nothing, to.data, offset(to, t));
  }

  LINREC_INLINE void read(const char* data, int64_t at, float* to) const {
    if (p.dtype == DType::float32) {
      const float* from = reinterpret_cast<const float*>(data) + at;
      if (p.width == D) return copy<D>(from, to);
      for (int i = 0; i < D; ++i) to[i] = i < p.width ? from[i] : 0.0f;
    } else {
      const uint16_t* from = reinterpret_cast<const uint16_t*>(data) + at;
      if (p.width == D)
        for (int i = 0; i < D; ++i) to[i] = bfloat16_to_float(from[i]);
      else
        for (int i = 0; i < D; ++i) to[i] = i < p.width ? bfloat16_to_float(from[i]) : 0.0f;
    }
  }

  LINREC_INLINE void write(const float* from, char* data, int64_t at) const {
    if (p.dtype == DType::float32) {
      float* to = reinterpret_cast<float*>(data) + at;
      if (p.width == D) return copy<D>(from, to);
      for (int i = 0; i < p.width; ++i) to[i] = from[i];
    } else {
      uint16_t* to = reinterpret_cast<uint16_t*>(data) + at;
      if (p.width == D)
        for (int i = 0; i < D; ++i) to[i] = float_to_bfloat16(from[i]);
      else
        for (int i = 0; i < p.width; ++i) to[i] = float_to_bfloat16(from[i]);
    }
  }

  // scores_cm = weight_cm x_c . y_m
  LINREC_INLINE void intra_chunk(const float* weight, View<D> x, View<D> y, float* scores) const {
    alignas(64) float transposed[SIZE];
    transpose<C, D>(y.data, transposed, y.row);
    product<C, D, C>(x.data, transposed, scores, {}, x.row);
    for (int i = 0; i < C * C; ++i) scores[i] *= weight[i];
  }

  // to_c = from_start_c x_c . state + sum over m in the chunk of scores_cm z_m
  template <Part PART>
  LINREC_INLINE void attend_chunk(const Direction& direction, const float* weight, View<D> x,
                                  View<D> y, View<D> z, const float* state, float* to,
                                  float* scores) const {
    intra_chunk(weight, x, y, scores);
    product<C, D, D>(x.data, state, to, {}, x.row);
    product<C, C, D, false, PART>(scores, z.data, to, ScaledRows{direction.from_start}, C, z.row);
  }

  template <Part PART>
  LINREC_INLINE void attend_chunk(const Direction& direction, const float* weight, View<D> x,
                                  View<D> y, View<D> z, const float* state, float* to) const {
    alignas(64) float scores[C * C];
    attend_chunk<PART>(direction, weight, x, y, z, state, to, scores);
  }

  // The same with the transposes of the state and of `scores`.
  LINREC_INLINE void attend_transposed(const Direction& direction, const float* scores, View<D> x,
                                       View<D> z, const float* state, float* to) const {
    alignas(64) float transposed[SIZE], transposed_out[SIZE];
    transpose<C, D>(x.data, transposed, x.row);
    if (decays)
      for (int i = 0; i < D; ++i)
        for (int c = 0; c < C; ++c) transposed[i * C + c] *= direction.from_start[c];
    product<D, D, C>(state, transposed, transposed_out);
    product<D, C, C, true>(z.data, scores, transposed_out, Scaled{1.0f}, z.row);
    transpose<D, C>(transposed_out, to);
  }

  // state = decayed state + sum over m in the chunk of to_end_m x_m y_m^T
  LINREC_INLINE void update_state(const Direction& direction, View<D> x, View<D> y,
                                  float* state) const {
    alignas(64) float decayed[SIZE];
    if (decays) {
      scale_rows<C, D>(x.data, direction.to_end, decayed, x.row);
      x = decayed;
    }
    product<D, C, D, true>(x.data, y.data, state, Scaled{powers[C]}, x.row, y.row);
  }

  // Inclusive sums over the positions up to each; `sum` carries from chunk to chunk.
  LINREC_INLINE void scan_ascending(const float* x, float* sum, float* to) const {
    constexpr int L = min(D, LINREC_LANES);
    for (int n = 0; n < D; n += L) {
      auto running = *lane<L>(sum + n);
      for (int at = n; at < SIZE; at += D)
        *lane<L>(to + at) = running = g * running + *lane<L>(x + at);
      *lane<L>(sum + n) = running;
    }
  }

  // Inclusive sums over the positions from each on.
  LINREC_INLINE void scan_descending(const float* x, float* sum, float* to) const {
    constexpr int L = min(D, LINREC_LANES);
    for (int n = 0; n < D; n += L) {
      auto running = *lane<L>(sum + n);
      for (int at = SIZE - D + n; at >= 0; at -= D)
        *lane<L>(to + at) = running = g * running + *lane<L>(x + at);
      *lane<L>(sum + n) = running;
    }
  }

  // The sum over one chunk's positions t of t (a_t . b_t).
  LINREC_INLINE double position_weighted(int64_t chunk, const float* a, const float* b) const {
    float all[D] = {}, late[D] = {};  // per feature, which the compiler can vectorise
    for (int c = 0; c < C; ++c)
      for (int i = 0; i < D; ++i) {
        const float each = a[c * D + i] * b[c * D + i];
        all[i] += each;
        late[i] += static_cast<float>(c) * each;
      }
    return static_cast<double>(chunk * C) * sum<D>(all) + sum<D>(late);
  }

  LINREC_INLINE void count_ascending(float& n, float* to) const {
    for (int c = 0; c < C; ++c) to[c] = n = g * n + 1.0f;
  }
};

}  // namespace linrec::LINREC_ISA
