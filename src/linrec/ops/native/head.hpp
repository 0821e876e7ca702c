// One head of one sequence: its rows in and out of memory, its weights, and the two steps that all
// forms of attention and of their gradients are made of.
#pragma once

#include "features.hpp"

namespace linrec::LINREC_ISA {

LINREC_INLINE float widened(uint16_t x) {
  const uint32_t bits = static_cast<uint32_t>(x) << 16;
  float to;
  memcpy(&to, &bits, sizeof to);
  return to;
}

LINREC_INLINE uint16_t narrowed(float x) {  // to nearest, ties to even
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  return (bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : static_cast<uint16_t>(rounded);
}

// Up: from the first position to the last. A sum that was closed at the last chunk's edge has faded
// by `since` at each position of this chunk, and each position will have by `until` at its own edge.
struct Way {
  float since[C], until[C];
  float including[C * C], without[C * C];  // weights within a chunk, with the position itself or not
};

template <int D>
struct Head {
  static constexpr int SIZE = C * D;

  const Problem& p;
  const int64_t b, h;
  const Features<D> features{p.rule, static_cast<int>(p.width)};
  const int32_t* places = p.places ? p.places + b * p.length : nullptr;
  const int64_t count = p.places ? p.counts[b] : p.length;  // padding takes no part in anything
  const int64_t chunks = (count + C - 1) / C;
  const bool fades = p.decay != nullptr;
  const float g = fades ? expf(p.decay[h]) : 1.0f;
  float powers[C + 1];
  Way up, down;

  Head(const Problem& problem, int64_t batch, int64_t head) : p(problem), b(batch), h(head) {
    powers[0] = 1.0f;
    for (int c = 0; c < C; ++c) powers[c + 1] = powers[c] * g;
    for (int c = 0; c < C; ++c) {
      up.since[c] = powers[c + 1];
      down.since[c] = powers[C - c];
      up.until[c] = powers[C - 1 - c];
      down.until[c] = powers[c];
    }
    for (int c = 0; c < C; ++c)
      for (int m = 0; m < C; ++m) {
        const float weight = powers[c > m ? c - m : m - c];
        up.including[c * C + m] = m <= c ? weight : 0.0f;
        up.without[c * C + m] = m < c ? weight : 0.0f;
        down.including[c * C + m] = m >= c ? weight : 0.0f;
        down.without[c * C + m] = m > c ? weight : 0.0f;
      }
  }

  int in_chunk(int64_t chunk) const {
    const int64_t left = count - chunk * C;
    return left < C ? static_cast<int>(left) : C;
  }

  int64_t place(int64_t t) const { return places ? places[t] : t; }

  // Rows of one chunk, zeros past the last position and past the width. The chunk that comes next
  // is sent for: rows of a fused projection lie too far apart for the CPU to guess.
  void load(const Rows& from, int64_t chunk, float* to, int ahead = 1) const {
    const int rows = in_chunk(chunk);
    for (int c = 0; c < rows; ++c) {
      const int64_t next = chunk * C + c + ahead * C;
      if (next >= 0 && next < count) prefetch(from, place(next));
      const int64_t at = b * from.batch + h * from.head + place(chunk * C + c) * from.row;
      read(from.data, at, to + c * D);
    }
    zero(to + rows * D, (C - rows) * D);
  }

  void prefetch(const Rows& from, int64_t t) const {
#if defined(__GNUC__)
    const int64_t bytes = p.number == Number::float32 ? 4 : 2;
    const char* row = from.data + bytes * (b * from.batch + h * from.head + t * from.row);
    for (int64_t at = 0; at < bytes * D; at += 64) __builtin_prefetch(row + at);
#endif
  }

  void store(const float* from, const Rows& to, int64_t chunk) const {
    const int rows = in_chunk(chunk);
    for (int c = 0; c < rows; ++c) {
      const int64_t at = b * to.batch + h * to.head + place(chunk * C + c) * to.row;
      write(from + c * D, to.data, at);
    }
  }

  // Padded positions get zeros.
  void clear_padding(const Rows& to) const {
    if (!p.keep) return;
    const float nothing[D] = {};
    for (int64_t t = 0; t < p.length; ++t)
      if (!p.keep[b * p.length + t])
        write(nothing, to.data, b * to.batch + h * to.head + t * to.row);
  }

  void read(const char* data, int64_t at, float* to) const {
    if (p.number == Number::float32) {
      const float* from = reinterpret_cast<const float*>(data) + at;
      if (p.width == D) return copy<D>(from, to);
      for (int i = 0; i < D; ++i) to[i] = i < p.width ? from[i] : 0.0f;
    } else {
      const uint16_t* from = reinterpret_cast<const uint16_t*>(data) + at;
      if (p.width == D)
        for (int i = 0; i < D; ++i) to[i] = widened(from[i]);
      else
        for (int i = 0; i < D; ++i) to[i] = i < p.width ? widened(from[i]) : 0.0f;
    }
  }

  void write(const float* from, char* data, int64_t at) const {
    if (p.number == Number::float32) {
      float* to = reinterpret_cast<float*>(data) + at;
      if (p.width == D) return copy<D>(from, to);
      for (int i = 0; i < p.width; ++i) to[i] = from[i];
    } else {
      uint16_t* to = reinterpret_cast<uint16_t*>(data) + at;
      if (p.width == D)
        for (int i = 0; i < D; ++i) to[i] = narrowed(from[i]);
      else
        for (int i = 0; i < p.width; ++i) to[i] = narrowed(from[i]);
    }
  }

  // to_c = since_c x_c . state + sum over m in the chunk of weight_cm (x_c . y_m) z_m
  template <Part PART>
  void answer(const Way& way, const float* weight, const float* x, const float* y, const float* z,
              const float* state, float* to) const {
    alignas(64) float turned[SIZE], near[C * C];
    transpose<C, D>(y, turned);
    product<C, D, C, false, true, Part::all>(x, turned, near);
    for (int i = 0; i < C * C; ++i) near[i] *= weight[i];
    product<C, D, D, false, true, Part::all>(x, state, to);
    if (fades) scale_rows<C, D>(to, way.since, to);
    product<C, C, D, false, false, PART>(near, z, to);
  }

  // state = faded state + sum over m in the chunk of until_m x_m y_m^T
  void absorb(const Way& way, const float* x, const float* y, float* state) const {
    alignas(64) float faded[SIZE];
    if (fades) {
      scale_rows<C, D>(x, way.until, faded);
      x = faded;
    }
    product<D, C, D, true, false, Part::all>(x, y, state, powers[C]);
  }

  // Sums over the positions up to each, itself included, and how far `sum` has got.
  void running_up(const float* x, float* sum, float* to) const {
    for (int c = 0; c < C; ++c)
      for (int i = 0; i < D; ++i) to[c * D + i] = sum[i] = g * sum[i] + x[c * D + i];
  }

  // Sums over the positions from each on, itself included.
  void running_down(const float* x, float* sum, float* to) const {
    for (int c = C - 1; c >= 0; --c)
      for (int i = 0; i < D; ++i) to[c * D + i] = sum[i] = g * sum[i] + x[c * D + i];
  }

  // The sum over one chunk's positions t of t (a_t . b_t).
  double ticked(int64_t chunk, const float* a, const float* b) const {
    alignas(64) float each[C];
    dots<C, D>(a, b, each);
    double total = 0;
    for (int c = 0; c < C; ++c) total += static_cast<double>(chunk * C + c) * each[c];
    return total;
  }

  void count_up(float& n, float* to) const {
    for (int c = 0; c < C; ++c) to[c] = n = g * n + 1.0f;
  }
};

}  // namespace linrec::LINREC_ISA
