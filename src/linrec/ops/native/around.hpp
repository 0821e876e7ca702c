// Attention both ways: over a whole sequence at once, or, where events fade, from either side.
#pragma once

#include "kernel.hpp"

namespace linrec::LINREC_ISA {

// Nothing fades: every query meets the same sums.
template <int D>
struct Whole {
  static constexpr int SIZE = C * D;

  static void forward(const Head<D>& head, Shelf shelf) {
    const Problem& p = head.p;
    float *F = shelf.take(head.chunks * SIZE), *S = shelf.take(D * D), *factors = shelf.take(C);
    alignas(64) float z[SIZE], n[C], x[SIZE], w[SIZE], inverse[SIZE], factor[C];
    totals(head, false, F, nullptr, factors, S, z, n);
    for (int64_t chunk = 0; chunk < head.chunks; ++chunk) {
      head.features.queries(head.load(p.q, chunk, x), head.in_chunk(chunk), factor, w);
      head.features.divided(w, z, n, inverse, w);
      product<C, D, D>(w, S, x);
      head.store(x, p.out, chunk);
    }
  }

  static void backward(const Head<D>& head, Shelf shelf) {
    const Problem& p = head.p;
    float *F = shelf.take(head.chunks * SIZE), *factors = shelf.take(head.chunks * C);
    float *S = shelf.take(D * D), *R = shelf.take(D * D), *T = shelf.take(D * D);
    alignas(64) float z[SIZE], n[C], x[SIZE], u[SIZE], w[SIZE], dz[SIZE], dn[C];
    alignas(64) float room[SIZE], inverse[SIZE], factor[C], Z[SIZE] = {};
    totals(head, true, F, factors, factors, S, z, n);
    zero(R, D * D);
    for (int64_t chunk = 0; chunk < head.chunks; ++chunk) {
      head.features.queries(head.load(p.q, chunk, x), head.in_chunk(chunk), factor, u);
      head.features.divided(u, z, n, inverse, w);
      const View<D> dout = head.load(p.dout, chunk, room);
      product<C, D, D>(dout.data, S, x, {}, dout.row);
      head.absorb(head.up, w, dout, R);
      head.features.divided_back(u, w, z, n, inverse, x, dz, dn);
      head.features.queries_back(u, factor, x);
      head.store(x, p.dq, chunk);
      for (int c = 0; c < C; ++c) add<D>(dz + c * D, Z);
    }
    for (int c = 1; c < C; ++c) copy<D>(Z, Z + c * D);
    transpose<D, D>(R, T);
    for (int64_t chunk = 0; chunk < head.chunks; ++chunk) {
      const float* f = F + chunk * SIZE;
      product<C, D, D>(f, R, x);
      head.store(x, p.dv, chunk);
      const View<D> v = head.load(p.v, chunk, w);
      product<C, D, D>(v.data, T, x, {}, v.row);
      head.features.columns_back(f, Z, x);
      head.features.keys_back(f, factors + chunk * C, x);
      head.store(x, p.dk, chunk);
    }
  }

  // Over all positions, the sums z in each of C rows; `turned` leaves S transposed.
  static void totals(const Head<D>& head, bool turned, float* F, float* each, float* factors,
                     float* S, float* z, float* n) {
    alignas(64) float room[SIZE], x[SIZE], sum[D] = {};
    zero(S, D * D);
    for (int64_t chunk = 0; chunk < head.chunks; ++chunk) {
      float* f = F + chunk * SIZE;
      head.features.keys(head.load(head.p.k, chunk, x), head.in_chunk(chunk), each ? each + chunk * C : factors, f);
      head.features.columns(f, x);
      head.running_up(x, sum, x);
      const View<D> v = head.load(head.p.v, chunk, room);
      if (turned) head.absorb(head.up, v, f, S);
      else head.absorb(head.up, f, v, S);
    }
    for (int c = 0; c < C; ++c) {
      copy<D>(sum, z + c * D);
      n[c] = static_cast<float>(head.count);
    }
  }
};

// Weights g^|t-m|: once up and once down, the event itself counted on the way up.
template <int D>
struct Around {
  static constexpr int SIZE = C * D;

  const Head<D>& head;
  const Problem& p = head.p;
  // each [chunks, C, D] or [chunks, C]; past: up to each position, itself included
  float *F, *W, *past_z, *z, *past_n, *n;
  float *S, *R;

  Around(const Head<D>& given, Shelf& shelf) : head(given) {
    F = shelf.take(head.chunks * SIZE), W = shelf.take(head.chunks * SIZE);
    past_z = shelf.take(head.chunks * SIZE), z = shelf.take(head.chunks * SIZE);
    past_n = shelf.take(head.chunks * C), n = shelf.take(head.chunks * C);
    S = shelf.take(D * D), R = shelf.take(D * D);
    alignas(64) float x[SIZE], inverse[SIZE], factor[C];
    for (int64_t chunk = 0; chunk < head.chunks; ++chunk) {
      head.features.keys(head.load(p.k, chunk, x), head.in_chunk(chunk), factor, F + chunk * SIZE);
      head.features.columns(F + chunk * SIZE, W + chunk * SIZE);
      for (int c = 0; c < C; ++c) n[chunk * C + c] = c < head.in_chunk(chunk) ? 1.0f : 0.0f;
    }
    sum_both_sides<D>(W, past_z, z);
    sum_both_sides<1>(n, past_n, n);
    for (int64_t chunk = 0; chunk < head.chunks; ++chunk) weights(chunk, x, factor, inverse);
  }

  // W of one chunk; leaves what made it
  void weights(int64_t chunk, float* u, float* factor, float* inverse) {
    alignas(64) float q[SIZE];
    head.features.queries(head.load(p.q, chunk, q), head.in_chunk(chunk), factor, u);
    head.features.divided(u, z + chunk * SIZE, n + chunk * C, inverse, W + chunk * SIZE);
  }

  // x: [chunks, C, E], which may be `all` itself
  template <int E>
  void sum_both_sides(const float* x, float* past, float* all) const {
    float sum[E] = {};
    for (int64_t t = 0; t < head.chunks * C; ++t)
      for (int i = 0; i < E; ++i) past[t * E + i] = sum[i] = head.g * sum[i] + x[t * E + i];
    zero(sum, E);
    for (int64_t t = head.chunks * C - 1; t >= 0; --t)
      for (int i = 0; i < E; ++i) {
        const float own = x[t * E + i];
        all[t * E + i] = past[t * E + i] + head.g * sum[i];
        sum[i] = head.g * sum[i] + own;
      }
  }

  static void forward(const Head<D>& head, Shelf shelf) {
    Around sums(head, shelf);
    sums.answer_queries(shelf.take(head.chunks * SIZE));
  }

  void answer_queries(float* O) {
    alignas(64) float room[SIZE], x[SIZE];
    zero(S, D * D);
    for (int64_t chunk = head.chunks - 1; chunk >= 0; --chunk) {
      const float *w = W + chunk * SIZE, *f = F + chunk * SIZE;
      const View<D> v = head.load(p.v, chunk, room);
      head.template answer<Part::upper>(head.down, head.down.without, w, f, v, S, O + chunk * SIZE);
      head.absorb(head.down, f, v, S);
    }
    zero(S, D * D);
    for (int64_t chunk = 0; chunk < head.chunks; ++chunk) {
      const float *w = W + chunk * SIZE, *f = F + chunk * SIZE;
      const View<D> v = head.load(p.v, chunk, room);
      head.template answer<Part::lower>(head.up, head.up.including, w, f, v, S, x);
      add<SIZE>(O + chunk * SIZE, x);
      head.store(x, p.out, chunk);
      head.absorb(head.up, f, v, S);
    }
  }

  static void backward(const Head<D>& head, Shelf shelf) {
    Around sums(head, shelf);
    sums.gradients(shelf);
  }

  // Gradients that came one way; S and R are the states of that way.
  struct Gradients {
    alignas(64) float dw[SIZE], df[SIZE], dv[SIZE];
  };

  template <Part PART>
  void one_way(const Way& way, const float* to_queries, const float* to_keys,
               const float* from_keys, int64_t chunk, Gradients& found) const {
    alignas(64) float v_copy[SIZE], dout_copy[SIZE], near[C * C];
    const float *w = W + chunk * SIZE, *f = F + chunk * SIZE;
    const View<D> v = head.load(p.v, chunk, v_copy), dout = head.load(p.dout, chunk, dout_copy);
    head.template answer<PART>(way, to_queries, dout, v, f, S, found.dw);
    head.template answer<PART>(way, to_keys, f, w, dout, R, found.dv);
    head.nearby(from_keys, dout, v, near);
    head.answer_turned(way, near, v, w, R, found.df);
    head.absorb(way, v, f, S);
    head.absorb(way, w, dout, R);
  }

  void clear_states() {
    zero(S, D * D);
    zero(R, D * D);
  }

  void gradients(Shelf& shelf) {
    float *DW = shelf.take(head.chunks * SIZE), *DF = shelf.take(head.chunks * SIZE);
    float *DV = shelf.take(head.chunks * SIZE), *DZ = shelf.take(head.chunks * SIZE);
    float *past_dz = shelf.take(head.chunks * SIZE);
    float *DN = shelf.take(head.chunks * C), *past_dn = shelf.take(head.chunks * C);
    double ddecay = 0;  // of pairs: tick of the later one minus tick of the earlier one
    Gradients found;
    clear_states();
    for (int64_t chunk = 0; chunk < head.chunks; ++chunk) {
      one_way<Part::lower>(head.up, head.up.including, head.up.without, head.down.without, chunk,
                           found);
      copy<SIZE>(found.dw, DW + chunk * SIZE);
      copy<SIZE>(found.df, DF + chunk * SIZE);
      copy<SIZE>(found.dv, DV + chunk * SIZE);
      ddecay += head.ticked(chunk, W + chunk * SIZE, found.dw) +
                head.ticked(chunk, F + chunk * SIZE, found.df);
    }
    clear_states();
    alignas(64) float u[SIZE], inverse[SIZE], factor[C];
    for (int64_t chunk = head.chunks - 1; chunk >= 0; --chunk) {
      float *dw = DW + chunk * SIZE, *df = DF + chunk * SIZE, *dv = DV + chunk * SIZE;
      one_way<Part::upper>(head.down, head.down.without, head.down.including, head.up.including,
                           chunk, found);
      ddecay -= head.ticked(chunk, W + chunk * SIZE, found.dw) +
                head.ticked(chunk, F + chunk * SIZE, found.df);
      add<SIZE>(found.dw, dw);
      add<SIZE>(found.df, df);
      add<SIZE>(found.dv, dv);
      head.store(dv, p.dv, chunk);
      weights(chunk, u, factor, inverse);
      head.features.divided_back(u, W + chunk * SIZE, z + chunk * SIZE, n + chunk * C,
                                 inverse, dw, DZ + chunk * SIZE, DN + chunk * C);
      head.features.queries_back(u, factor, dw);
      head.store(dw, p.dq, chunk);
    }
    if (p.ddecay) ddecay += received(DZ, DN);
    sum_both_sides<D>(DZ, past_dz, DZ);
    sum_both_sides<1>(DN, past_dn, DN);
    if (p.ddecay) p.ddecay[head.b * p.heads + head.h] = ddecay + given(past_dz, DZ, past_dn, DN);
    for (int64_t chunk = 0; chunk < head.chunks; ++chunk) {
      const float* f = F + chunk * SIZE;
      head.features.columns_back(f, DZ + chunk * SIZE, DF + chunk * SIZE);
      head.features.keys_back(f, factor, DF + chunk * SIZE);
      head.store(DF + chunk * SIZE, p.dk, chunk);
    }
  }

  // What queries got from the sums of their past, less what from those of their future. An event
  // that gave to itself is taken out twice, here for both sides.
  double received(const float* DZ, const float* DN) const {
    alignas(64) float x[SIZE];
    double total = 0;
    for (int64_t chunk = 0; chunk < head.chunks; ++chunk) {
      const float* f = F + chunk * SIZE;
      for (int i = 0; i < SIZE; ++i)
        x[i] = 2.0f * (past_z[chunk * SIZE + i] - f[i] * f[i]) - z[chunk * SIZE + i];
      total += head.ticked(chunk, DZ + chunk * SIZE, x);
    }
    for (int64_t t = 0; t < head.count; ++t)
      total += static_cast<double>(t) * DN[t] * (2.0f * (past_n[t] - 1.0f) - n[t]);
    return total;
  }

  // What keys gave to sums of earlier queries and their own, less what to those of later ones.
  double given(const float* past_dz, const float* dz, const float* past_dn, const float* dn) const {
    alignas(64) float x[SIZE];
    double total = 0;
    for (int64_t chunk = 0; chunk < head.chunks; ++chunk) {
      const float* f = F + chunk * SIZE;
      for (int i = 0; i < SIZE; ++i)
        x[i] = f[i] * (2.0f * past_dz[chunk * SIZE + i] - dz[chunk * SIZE + i]);
      total += head.ticked(chunk, f, x);
    }
    for (int64_t t = 0; t < head.count; ++t)
      total += static_cast<double>(t) * (2.0f * past_dn[t] - dn[t]);
    return total;
  }
};

}  // namespace linrec::LINREC_ISA
