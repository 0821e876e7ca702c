// Bidirectional linear attention: all positions at once, or with a decay, from either side.
#pragma once

#include "arena.hpp"
#include "head.hpp"

namespace linrec::LINREC_ISA {

// Without a decay every query meets the same sums.
template <int D>
struct Bidirectional {
  static constexpr int SIZE = C * D;

  struct Forward {
    float *F, *key_factor, *S;

    Forward(int64_t chunks, Arena& arena)
        : F(arena.take(chunks * SIZE)), key_factor(arena.take(chunks * C)), S(arena.take(D * D)) {}
  };

  struct Backward : Forward {
    float *R, *T;

    Backward(int64_t chunks, Arena& arena)
        : Forward(chunks, arena), R(arena.take(D * D)), T(arena.take(D * D)) {}
  };

  static void forward(const Head<D>& head, const Forward& buffers) {
    const Problem& p = head.p;
    alignas(64) float z[SIZE], n[C], x[SIZE], w[SIZE], inverse[SIZE], factor[C];
    totals(head, false, buffers, z, n);
    for (int64_t chunk = 0; chunk < head.chunks; ++chunk) {
      head.features.queries(head.load(p.q, chunk, x), head.in_chunk(chunk), factor, w);
      head.features.divide(w, z, n, inverse, w);
      product<C, D, D>(w, buffers.S, x);
      head.store(x, p.out, chunk);
    }
  }

  static void backward(const Head<D>& head, const Backward& buffers) {
    const Problem& p = head.p;
    float *S = buffers.S, *R = buffers.R, *T = buffers.T;
    alignas(64) float z[SIZE], n[C], x[SIZE], u[SIZE], w[SIZE], dz[SIZE], dn[C];
    alignas(64) float buffer[SIZE], inverse[SIZE], factor[C], Z[SIZE] = {};
    totals(head, true, buffers, z, n);
    zero(R, D * D);
    for (int64_t chunk = 0; chunk < head.chunks; ++chunk) {
      head.features.queries(head.load(p.q, chunk, x), head.in_chunk(chunk), factor, u);
      head.features.divide(u, z, n, inverse, w);
      const View<D> dout = head.load(p.dout, chunk, buffer);
      product<C, D, D>(dout.data, S, x, {}, dout.row);
      head.update_state(head.ascending, w, dout, R);
      head.features.divide_backward(u, w, z, n, inverse, x, dz, dn);
      head.features.queries_backward(u, factor, x);
      head.store(x, p.dq, chunk);
      for (int c = 0; c < C; ++c) add<D>(dz + c * D, Z);
    }
    for (int c = 1; c < C; ++c) copy<D>(Z, Z + c * D);
    transpose<D, D>(R, T);
    for (int64_t chunk = 0; chunk < head.chunks; ++chunk) {
      const float* f = buffers.F + chunk * SIZE;
      product<C, D, D>(f, R, x);
      head.store(x, p.dv, chunk);
      const View<D> v = head.load(p.v, chunk, w);
      product<C, D, D>(v.data, T, x, {}, v.row);
      head.features.columns_backward(f, Z, x);
      head.features.keys_backward(f, buffers.key_factor + chunk * C, x);
      head.store(x, p.dk, chunk);
    }
  }

  // F, key_factor and S over all positions, and the sum z in each of C rows.
  static void totals(const Head<D>& head, bool transposed, const Forward& buffers, float* z,
                     float* n) {
    alignas(64) float buffer[SIZE], x[SIZE], sum[D] = {};
    zero(buffers.S, D * D);
    for (int64_t chunk = 0; chunk < head.chunks; ++chunk) {
      float* f = buffers.F + chunk * SIZE;
      head.features.keys(head.load(head.p.k, chunk, x), head.in_chunk(chunk),
                         buffers.key_factor + chunk * C, f);
      head.features.columns(f, x);
      head.scan_ascending(x, sum, x);
      const View<D> v = head.load(head.p.v, chunk, buffer);
      if (transposed) head.update_state(head.ascending, v, f, buffers.S);
      else head.update_state(head.ascending, f, v, buffers.S);
    }
    for (int c = 0; c < C; ++c) {
      copy<D>(sum, z + c * D);
      n[c] = static_cast<float>(head.count);
    }
  }
};

// Weights g^|t-m|: one pass in ascending order, which counts the event itself, one in descending.
template <int D>
struct BidirectionalDecay {
  static constexpr int SIZE = C * D;

  // Each [chunks, C, D] or [chunks, C]; prefix: up to each position, itself included.
  struct Sums {
    float *F, *W, *prefix_z, *z, *prefix_n, *n, *key_factor, *S;

    Sums(int64_t chunks, Arena& arena)
        : F(arena.take(chunks * SIZE)), W(arena.take(chunks * SIZE)),
          prefix_z(arena.take(chunks * SIZE)), z(arena.take(chunks * SIZE)),
          prefix_n(arena.take(chunks * C)), n(arena.take(chunks * C)),
          key_factor(arena.take(chunks * C)), S(arena.take(D * D)) {}
  };

  struct Forward : Sums {
    float* O;

    Forward(int64_t chunks, Arena& arena) : Sums(chunks, arena), O(arena.take(chunks * SIZE)) {}
  };

  struct Backward : Sums {
    float *R, *DW, *DF, *DV, *DZ, *prefix_dz, *DN, *prefix_dn;

    Backward(int64_t chunks, Arena& arena)
        : Sums(chunks, arena), R(arena.take(D * D)), DW(arena.take(chunks * SIZE)),
          DF(arena.take(chunks * SIZE)), DV(arena.take(chunks * SIZE)),
          DZ(arena.take(chunks * SIZE)), prefix_dz(arena.take(chunks * SIZE)),
          DN(arena.take(chunks * C)), prefix_dn(arena.take(chunks * C)) {}
  };

  static void sums(const Head<D>& head, const Sums& s) {
    alignas(64) float x[SIZE], inverse[SIZE], factor[C];
    for (int64_t chunk = 0; chunk < head.chunks; ++chunk) {
      head.features.keys(head.load(head.p.k, chunk, x), head.in_chunk(chunk),
                         s.key_factor + chunk * C, s.F + chunk * SIZE);
      head.features.columns(s.F + chunk * SIZE, s.W + chunk * SIZE);
      for (int c = 0; c < C; ++c) s.n[chunk * C + c] = c < head.in_chunk(chunk) ? 1.0f : 0.0f;
    }
    bidirectional_sum<D>(head, s.W, s.prefix_z, s.z);
    bidirectional_sum<1>(head, s.n, s.prefix_n, s.n);
    for (int64_t chunk = 0; chunk < head.chunks; ++chunk)
      weights(head, s, chunk, x, factor, inverse);
  }

  // W of one chunk, and the query features, their factors and the inverse that made it.
  static void weights(const Head<D>& head, const Sums& s, int64_t chunk, float* u, float* factor,
                      float* inverse) {
    alignas(64) float q[SIZE];
    head.features.queries(head.load(head.p.q, chunk, q), head.in_chunk(chunk), factor, u);
    head.features.divide(u, s.z + chunk * SIZE, s.n + chunk * C, inverse, s.W + chunk * SIZE);
  }

  // x: [chunks, C, E], which may be `all` itself
  template <int E>
  static void bidirectional_sum(const Head<D>& head, const float* x, float* prefix, float* all) {
    float sum[E] = {};
    for (int64_t t = 0; t < head.chunks * C; ++t)
      for (int i = 0; i < E; ++i) prefix[t * E + i] = sum[i] = head.g * sum[i] + x[t * E + i];
    zero(sum, E);
    for (int64_t t = head.chunks * C - 1; t >= 0; --t)
      for (int i = 0; i < E; ++i) {
        const float own = x[t * E + i];
        all[t * E + i] = prefix[t * E + i] + head.g * sum[i];
        sum[i] = head.g * sum[i] + own;
      }
  }

  static void forward(const Head<D>& head, const Forward& s) {
    sums(head, s);
    alignas(64) float buffer[SIZE], x[SIZE];
    zero(s.S, D * D);
    for (int64_t chunk = head.chunks - 1; chunk >= 0; --chunk) {
      const float *w = s.W + chunk * SIZE, *f = s.F + chunk * SIZE;
      const View<D> v = head.load(head.p.v, chunk, buffer, -1);
      head.template attend_chunk<Part::upper>(head.descending, head.descending.exclusive, w, f, v,
                                              s.S, s.O + chunk * SIZE);
      head.update_state(head.descending, f, v, s.S);
    }
    zero(s.S, D * D);
    for (int64_t chunk = 0; chunk < head.chunks; ++chunk) {
      const float *w = s.W + chunk * SIZE, *f = s.F + chunk * SIZE;
      const View<D> v = head.load(head.p.v, chunk, buffer);
      head.template attend_chunk<Part::lower>(head.ascending, head.ascending.inclusive, w, f, v,
                                              s.S, x);
      add<SIZE>(s.O + chunk * SIZE, x);
      head.store(x, head.p.out, chunk);
      head.update_state(head.ascending, f, v, s.S);
    }
  }

  // Gradients that came in one direction; S and R are the states of that direction.
  struct Gradients {
    alignas(64) float dw[SIZE], df[SIZE], dv[SIZE];
  };

  // Which weights within a chunk lead from keys to queries, and back to keys and values.
  struct Weights {
    const float *to_queries, *to_keys, *from_keys;
  };

  template <Part PART>
  static void one_direction(const Head<D>& head, const Backward& s, const Direction& direction,
                            const Weights& weights, int64_t chunk, Gradients& to) {
    const Problem& p = head.p;
    alignas(64) float v_copy[SIZE], dout_copy[SIZE], scores[C * C];
    const float *w = s.W + chunk * SIZE, *f = s.F + chunk * SIZE;
    const View<D> v = head.load(p.v, chunk, v_copy), dout = head.load(p.dout, chunk, dout_copy);
    head.template attend_chunk<PART>(direction, weights.to_queries, dout, v, f, s.S, to.dw);
    head.template attend_chunk<PART>(direction, weights.to_keys, f, w, dout, s.R, to.dv);
    head.intra_chunk(weights.from_keys, dout, v, scores);
    head.attend_transposed(direction, scores, v, w, s.R, to.df);
    head.update_state(direction, v, f, s.S);
    head.update_state(direction, w, dout, s.R);
  }

  static void backward(const Head<D>& head, const Backward& s) {
    const Problem& p = head.p;
    sums(head, s);
    // of pairs: the position of the later one minus that of the earlier one
    double ddecay = ascending(head, s) + descending(head, s);
    if (p.ddecay) ddecay += received(head, s);
    bidirectional_sum<D>(head, s.DZ, s.prefix_dz, s.DZ);
    bidirectional_sum<1>(head, s.DN, s.prefix_dn, s.DN);
    if (p.ddecay) p.ddecay[head.b * p.heads + head.h] = ddecay + given(head, s);
    for (int64_t chunk = 0; chunk < head.chunks; ++chunk) {
      const float* f = s.F + chunk * SIZE;
      head.features.columns_backward(f, s.DZ + chunk * SIZE, s.DF + chunk * SIZE);
      head.features.keys_backward(f, s.key_factor + chunk * C, s.DF + chunk * SIZE);
      head.store(s.DF + chunk * SIZE, p.dk, chunk);
    }
  }

  // Begins DW, DF and DV; returns a share of the decay's gradient.
  static double ascending(const Head<D>& head, const Backward& s) {
    const Weights weights{head.ascending.inclusive, head.ascending.exclusive,
                          head.descending.exclusive};
    double ddecay = 0;
    Gradients one;
    zero(s.S, D * D);
    zero(s.R, D * D);
    for (int64_t chunk = 0; chunk < head.chunks; ++chunk) {
      one_direction<Part::lower>(head, s, head.ascending, weights, chunk, one);
      copy<SIZE>(one.dw, s.DW + chunk * SIZE);
      copy<SIZE>(one.df, s.DF + chunk * SIZE);
      copy<SIZE>(one.dv, s.DV + chunk * SIZE);
      ddecay += head.position_weighted(chunk, s.W + chunk * SIZE, one.dw) +
                head.position_weighted(chunk, s.F + chunk * SIZE, one.df);
    }
    return ddecay;
  }

  // Completes DW, DF and DV, writes dv and dq; returns a share of the decay's gradient.
  static double descending(const Head<D>& head, const Backward& s) {
    const Problem& p = head.p;
    const Weights weights{head.descending.exclusive, head.descending.inclusive,
                          head.ascending.inclusive};
    double ddecay = 0;
    Gradients one;
    zero(s.S, D * D);
    zero(s.R, D * D);
    alignas(64) float u[SIZE], inverse[SIZE], factor[C];
    for (int64_t chunk = head.chunks - 1; chunk >= 0; --chunk) {
      float *dw = s.DW + chunk * SIZE, *df = s.DF + chunk * SIZE, *dv = s.DV + chunk * SIZE;
      one_direction<Part::upper>(head, s, head.descending, weights, chunk, one);
      ddecay -= head.position_weighted(chunk, s.W + chunk * SIZE, one.dw) +
                head.position_weighted(chunk, s.F + chunk * SIZE, one.df);
      add<SIZE>(one.dw, dw);
      add<SIZE>(one.df, df);
      add<SIZE>(one.dv, dv);
      head.store(dv, p.dv, chunk);
      BidirectionalDecay::weights(head, s, chunk, u, factor, inverse);
      head.features.divide_backward(u, s.W + chunk * SIZE, s.z + chunk * SIZE, s.n + chunk * C,
                                    inverse, dw, s.DZ + chunk * SIZE, s.DN + chunk * C);
      head.features.queries_backward(u, factor, dw);
      head.store(dw, p.dq, chunk);
    }
    return ddecay;
  }

  // What queries received from the sums of earlier events, less what from those of later ones. What
  // an event gave to itself is taken out twice, here for both sides.
  static double received(const Head<D>& head, const Backward& s) {
    alignas(64) float x[SIZE];
    double total = 0;
    for (int64_t chunk = 0; chunk < head.chunks; ++chunk) {
      const float* f = s.F + chunk * SIZE;
      for (int i = 0; i < SIZE; ++i)
        x[i] = 2.0f * (s.prefix_z[chunk * SIZE + i] - f[i] * f[i]) - s.z[chunk * SIZE + i];
      total += head.position_weighted(chunk, s.DZ + chunk * SIZE, x);
    }
    for (int64_t t = 0; t < head.count; ++t)
      total += static_cast<double>(t) * s.DN[t] * (2.0f * (s.prefix_n[t] - 1.0f) - s.n[t]);
    return total;
  }

  // What keys gave to the sums of earlier queries and their own, less what to those of later ones.
  static double given(const Head<D>& head, const Backward& s) {
    alignas(64) float x[SIZE];
    double total = 0;
    for (int64_t chunk = 0; chunk < head.chunks; ++chunk) {
      const float* f = s.F + chunk * SIZE;
      for (int i = 0; i < SIZE; ++i)
        x[i] = f[i] * (2.0f * s.prefix_dz[chunk * SIZE + i] - s.DZ[chunk * SIZE + i]);
      total += head.position_weighted(chunk, f, x);
    }
    for (int64_t t = 0; t < head.count; ++t)
      total += static_cast<double>(t) * (2.0f * s.prefix_dn[t] - s.DN[t]);
    return total;
  }
};

}  // namespace linrec::LINREC_ISA
