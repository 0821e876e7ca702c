// LinRec's attention and its gradient, C positions at a time.
//
//   f = keys' features     S_t = g S_(t-1) + f v^T    z_t = g z_(t-1) + f^2    n_t = g n_(t-1) + 1
//   u = queries' features  w = u / sqrt(n z)          out_t = w S_t
//
// Backwards, with R_t = g R_(t+1) + w_t dout_t^T:  dw = S dout, df = R v + 2 f Z, dv = R^T f, where
// Z is the same sum of dz. All four are one and the same step, Head::answer, on other letters.
//
// The gradient of log g needs no state of its own: a pair of events counts exp(distance log g), so
// it is the sum over events of tick * (what they received - what they gave).
#pragma once

#include "head.hpp"

namespace linrec::LINREC_ISA {

// Hands out pieces of a thread's scratch memory.
struct Shelf {
  float* next;

  float* take(int64_t size) {
    float* taken = next;
    next += (size + 15) / 16 * 16;
    return taken;
  }
};

template <int D>
struct Causal {
  static constexpr int SIZE = C * D;

  static void forward(const Head<D>& head, Shelf shelf) {
    const Problem& p = head.p;
    float* S = shelf.take(D * D);
    zero(S, D * D);
    alignas(64) float f[SIZE], v[SIZE], w[SIZE], x[SIZE], y[SIZE], factor[C], n[C], z[D] = {};
    float seen = 0;
    for (int64_t chunk = 0; chunk < head.chunks; ++chunk) {
      const int count = head.in_chunk(chunk);
      head.load(p.k, chunk, x);
      head.features.keys(x, count, factor, f);
      head.features.columns(f, x);
      head.running_up(x, z, x);
      head.count_up(seen, n);
      head.load(p.q, chunk, y);
      head.features.queries(y, count, factor, w);
      head.features.divided(w, x, n, y, w);
      head.load(p.v, chunk, v);
      head.template answer<Part::lower>(head.up, head.up.including, w, f, v, S, x);
      head.store(x, p.out, chunk);
      head.absorb(head.up, f, v, S);
    }
  }

  static void backward(const Head<D>& head, Shelf shelf) {
    const Problem& p = head.p;
    float *W = shelf.take(head.chunks * SIZE), *F = shelf.take(head.chunks * SIZE);
    float *DZ = shelf.take(head.chunks * SIZE), *DN = shelf.take(head.chunks * C);
    float *factors = shelf.take(head.chunks * C), *S = shelf.take(D * D), *T = shelf.take(D * D);
    double ddecay = queries(head, S, W, F, DZ, DN, factors);

    // S is now R, T its transpose
    zero(S, D * D);
    zero(T, D * D);
    alignas(64) float v[SIZE], dout[SIZE], dv[SIZE], df[SIZE], dz[SIZE], z[D] = {};
    float dn = 0;
    for (int64_t chunk = head.chunks - 1; chunk >= 0; --chunk) {
      const float *w = W + chunk * SIZE, *f = F + chunk * SIZE;
      head.load(p.v, chunk, v, -1);
      head.load(p.dout, chunk, dout, -1);
      head.template answer<Part::upper>(head.down, head.down.including, f, w, dout, S, dv);
      head.template answer<Part::upper>(head.down, head.down.including, v, dout, w, T, df);
      head.store(dv, p.dv, chunk);
      head.absorb(head.down, w, dout, S);
      head.absorb(head.down, dout, w, T);
      head.running_down(DZ + chunk * SIZE, z, dz);
      if (p.ddecay) ddecay -= given(head, chunk, f, df, dz, DN + chunk * C, dn);
      head.features.columns_back(f, dz, df);
      head.features.keys_back(f, factors + chunk * C, df);
      head.store(df, p.dk, chunk);
    }
    if (p.ddecay) p.ddecay[head.b * p.heads + head.h] = ddecay;
  }

  // Writes dq, and what the way back needs of each position. Returns the tick-weighted sum of what
  // the queries received, of which only epsilon's share is left: they divide by all they receive.
  static double queries(const Head<D>& head, float* S, float* W, float* F, float* DZ, float* DN,
                        float* factors) {
    const Problem& p = head.p;
    zero(S, D * D);
    alignas(64) float v[SIZE], u[SIZE], dout[SIZE], dw[SIZE], x[SIZE], y[SIZE], inverse[SIZE];
    alignas(64) float factor[C], n[C], z[D] = {};
    float seen = 0;
    double received = 0;
    for (int64_t chunk = 0; chunk < head.chunks; ++chunk) {
      const int count = head.in_chunk(chunk);
      float *w = W + chunk * SIZE, *f = F + chunk * SIZE, *dz = DZ + chunk * SIZE;
      head.load(p.k, chunk, x);
      head.features.keys(x, count, factors + chunk * C, f);
      head.features.columns(f, x);
      head.running_up(x, z, x);
      head.count_up(seen, n);
      head.load(p.q, chunk, y);
      head.features.queries(y, count, factor, u);
      head.features.divided(u, x, n, inverse, w);
      head.load(p.v, chunk, v);
      head.load(p.dout, chunk, dout);
      head.template answer<Part::lower>(head.up, head.up.including, dout, v, f, S, dw);
      head.absorb(head.up, v, f, S);
      if (p.ddecay) {
        for (int i = 0; i < SIZE; ++i) y[i] = dw[i] * EPSILON * inverse[i] * inverse[i];
        received += head.ticked(chunk, w, y);
      }
      head.features.divided_back(u, w, x, n, inverse, dw, dz, DN + chunk * C);
      head.features.queries_back(u, factor, dw);
      head.store(dw, p.dq, chunk);
    }
    return received;
  }

  // The tick-weighted sum of what one chunk's keys gave to later queries and to their divisors.
  static double given(const Head<D>& head, int64_t chunk, const float* f, const float* df,
                      const float* dz, const float* DN, float& dn) {
    alignas(64) float each[SIZE];
    for (int i = 0; i < SIZE; ++i) each[i] = df[i] + f[i] * dz[i];
    double total = head.ticked(chunk, f, each);
    for (int c = C - 1; c >= 0; --c) {
      dn = head.g * dn + DN[c];
      if (c < head.in_chunk(chunk)) total += static_cast<double>(chunk * C + c) * dn;
    }
    return total;
  }
};

}  // namespace linrec::LINREC_ISA
