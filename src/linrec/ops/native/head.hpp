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
  const int64_t start = p.keep ? p.starts[b] : 0;
  const int32_t* places = start < 0 ? p.places + b * p.length : nullptr;
  const int64_t count = p.keep ? p.counts[b] : p.length;  // padding takes no part in anything
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

  LINREC_INLINE int in_chunk(int64_t chunk) const {
    const int64_t left = count - chunk * C;
    return left < C ? static_cast<int>(left) : C;
  }

  LINREC_INLINE int64_t place(int64_t t) const { return places ? places[t] : start + t; }

  LINREC_INLINE int64_t offset(const Rows& rows, int64_t t) const {
    return b * rows.batch + h * rows.head + t * rows.row;
  }

  // Whether a chunk's rows are D numbers each, as they are, at one distance from each other.
  LINREC_INLINE bool regular(int64_t chunk) const {
    return p.number == Number::float32 && p.width == D && !places && in_chunk(chunk) == C;
  }

  // Rows of one chunk where they are, or else in `room`, zeros past the last position and past the
  // width. The chunk that comes next is sent for: rows of a fused projection lie too far apart for
  // the CPU to guess.
  LINREC_INLINE View<D> load(const Rows& from, int64_t chunk, float* room, int ahead = 1) const {
    send_for(from, chunk + ahead);
    if (regular(chunk))
      return {reinterpret_cast<const float*>(from.data) + offset(from, place(chunk * C)), from.row};
    const int rows = in_chunk(chunk);
    for (int c = 0; c < rows; ++c)
      read(from.data, offset(from, place(chunk * C + c)), room + c * D);
    zero(room + rows * D, (C - rows) * D);
    return room;
  }

  LINREC_INLINE void send_for(const Rows& rows, int64_t chunk) const {
#if defined(__GNUC__)
    if (chunk < 0 || chunk >= chunks) return;
    const int64_t bytes = p.number == Number::float32 ? 4 : 2;
    const int count = in_chunk(chunk);
    for (int c = 0; c < count; ++c) {
      const char* row = rows.data + bytes * offset(rows, place(chunk * C + c));
      for (int at = 0; at < 4 * D; at += 64) __builtin_prefetch(row + at);
    }
#endif
  }

  LINREC_INLINE void store(const float* from, const Rows& to, int64_t chunk, int ahead = 1) const {
    send_for(to, chunk + ahead);  // a line of memory is read before it is written
    if (regular(chunk)) {
      float* row = reinterpret_cast<float*>(to.data) + offset(to, place(chunk * C));
      for (int c = 0; c < C; ++c, row += to.row) copy<D>(from + c * D, row);
      return;
    }
    const int rows = in_chunk(chunk);
    for (int c = 0; c < rows; ++c)
      write(from + c * D, to.data, offset(to, place(chunk * C + c)));
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

  LINREC_INLINE void write(const float* from, char* data, int64_t at) const {
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

  // near_cm = weight_cm x_c . y_m
  LINREC_INLINE void nearby(const float* weight, View<D> x, View<D> y, float* near) const {
    alignas(64) float turned[SIZE];
    transpose<C, D>(y.data, turned, y.row);
    product<C, D, C>(x.data, turned, near, {}, x.row);
    for (int i = 0; i < C * C; ++i) near[i] *= weight[i];
  }

  // to_c = since_c x_c . state + sum over m in the chunk of near_cm z_m
  template <Part PART>
  LINREC_INLINE void answer(const Way& way, const float* weight, View<D> x, View<D> y, View<D> z,
                            const float* state, float* to, float* near) const {
    nearby(weight, x, y, near);
    product<C, D, D>(x.data, state, to, {}, x.row);
    product<C, C, D, false, PART>(near, z.data, to, KeptRows{way.since}, C, z.row);
  }

  template <Part PART>
  LINREC_INLINE void answer(const Way& way, const float* weight, View<D> x, View<D> y, View<D> z,
                            const float* state, float* to) const {
    alignas(64) float near[C * C];
    answer<PART>(way, weight, x, y, z, state, to, near);
  }

  // The same of the state's transpose, with the transpose of `near`.
  LINREC_INLINE void answer_turned(const Way& way, const float* near, View<D> x, View<D> z,
                                   const float* state, float* to) const {
    alignas(64) float turned[SIZE], turned_to[SIZE];
    transpose<C, D>(x.data, turned, x.row);
    if (fades)
      for (int i = 0; i < D; ++i)
        for (int c = 0; c < C; ++c) turned[i * C + c] *= way.since[c];
    product<D, D, C>(state, turned, turned_to);
    product<D, C, C, true>(z.data, near, turned_to, Kept{1.0f}, z.row);
    transpose<D, C>(turned_to, to);
  }

  // state = faded state + sum over m in the chunk of until_m x_m y_m^T
  LINREC_INLINE void absorb(const Way& way, View<D> x, View<D> y, float* state) const {
    alignas(64) float faded[SIZE];
    if (fades) {
      scale_rows<C, D>(x.data, way.until, faded, x.row);
      x = faded;
    }
    product<D, C, D, true>(x.data, y.data, state, Kept{powers[C]}, x.row, y.row);
  }

  // Sums over the positions up to each, itself included, and how far `sum` has got.
  LINREC_INLINE void running_up(const float* x, float* sum, float* to) const {
    constexpr int L = at_most(D, LINREC_LANES);
    for (int n = 0; n < D; n += L) {
      auto so_far = *lane<L>(sum + n);
      for (int at = n; at < SIZE; at += D)
        *lane<L>(to + at) = so_far = g * so_far + *lane<L>(x + at);
      *lane<L>(sum + n) = so_far;
    }
  }

  // Sums over the positions from each on, itself included.
  LINREC_INLINE void running_down(const float* x, float* sum, float* to) const {
    constexpr int L = at_most(D, LINREC_LANES);
    for (int n = 0; n < D; n += L) {
      auto so_far = *lane<L>(sum + n);
      for (int at = SIZE - D + n; at >= 0; at -= D)
        *lane<L>(to + at) = so_far = g * so_far + *lane<L>(x + at);
      *lane<L>(sum + n) = so_far;
    }
  }

  // The sum over one chunk's positions t of t (a_t . b_t).
  LINREC_INLINE double ticked(int64_t chunk, const float* a, const float* b) const {
    float all[D] = {}, late[D] = {};  // by feature: the order of additions is ours to choose
    for (int c = 0; c < C; ++c)
      for (int i = 0; i < D; ++i) {
        const float each = a[c * D + i] * b[c * D + i];
        all[i] += each;
        late[i] += static_cast<float>(c) * each;
      }
    return static_cast<double>(chunk * C) * sum<D>(all) + sum<D>(late);
  }

  LINREC_INLINE void count_up(float& n, float* to) const {
    for (int c = 0; c < C; ++c) to[c] = n = g * n + 1.0f;
  }
};

}  // namespace linrec::LINREC_ISA
