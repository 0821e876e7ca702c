// LinRec's attention and its gradient, C positions at a time.
//
//   f = keys' features     S_t = g S_(t-1) + f v^T    z_t = g z_(t-1) + f^2    n_t = g n_(t-1) + 1
//   u = queries' features  w = u / sqrt(n z)          out_t = w S_t
//
// Backwards, with R_t = g R_(t+1) + w_t dout_t^T:  dw = S dout, df = R v + 2 f Z, dv = R^T f, where
// Z is the same sum of dz. All are one and the same step, Head::answer, on other letters; df
// reads R transposed, Head::answer_turned.
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
    alignas(64) float f[SIZE], w[SIZE], x[SIZE], y[SIZE], room[SIZE], factor[C], n[C], z[D] = {};
    float seen = 0;
    for (int64_t chunk = 0; chunk < head.chunks; ++chunk) {
      const int count = head.in_chunk(chunk);
      head.features.keys(head.load(p.k, chunk, room), count, factor, f);
      head.features.columns(f, x);
      head.running_up(x, z, x);
      head.count_up(seen, n);
      head.features.queries(head.load(p.q, chunk, room), count, factor, w);
      head.features.divided(w, x, n, y, w);
      const View<D> v = head.load(p.v, chunk, room);
      head.template answer<Part::lower>(head.up, head.up.including, w, f, v, S, x);
      head.store(x, p.out, chunk);
      head.absorb(head.up, f, v, S);
    }
  }

  // What the way back needs of each position.
  struct Saved {
    float *w, *f, *dz, *near, *dn, *factor;

    Saved(int64_t chunks, Shelf& shelf)
        : w(shelf.take(chunks * SIZE)), f(shelf.take(chunks * SIZE)), dz(shelf.take(chunks * SIZE)),
          near(shelf.take(chunks * C * C)), dn(shelf.take(chunks * C)),
          factor(shelf.take(chunks * C)) {}

    Saved at(int64_t chunk) const {
      Saved there = *this;
      there.w += chunk * SIZE, there.f += chunk * SIZE, there.dz += chunk * SIZE;
      there.near += chunk * C * C, there.dn += chunk * C, there.factor += chunk * C;
      return there;
    }
  };

  static void backward(const Head<D>& head, Shelf shelf) {
    const Problem& p = head.p;
    const Saved all(head.chunks, shelf);
    float* R = shelf.take(D * D);
    double ddecay = queries(head, R, all);
    zero(R, D * D);
    alignas(64) float v_copy[SIZE], dout_copy[SIZE], dv[SIZE], df[SIZE], dz[SIZE], z[D] = {};
    float dn = 0;
    for (int64_t chunk = head.chunks - 1; chunk >= 0; --chunk) {
      const Saved saved = all.at(chunk);
      const View<D> v = head.load(p.v, chunk, v_copy, -1);
      const View<D> dout = head.load(p.dout, chunk, dout_copy, -1);
      head.template answer<Part::upper>(head.down, head.down.including, saved.f, saved.w, dout, R, dv);
      head.answer_turned(head.down, saved.near, v, saved.w, R, df);
      head.store(dv, p.dv, chunk, -1);
      head.absorb(head.down, saved.w, dout, R);
      head.running_down(saved.dz, z, dz);
      if (p.ddecay) ddecay -= given(head, chunk, saved, df, dz, dn);
      head.features.columns_back(saved.f, dz, df);
      head.features.keys_back(saved.f, saved.factor, df);
      head.store(df, p.dk, chunk, -1);
    }
    if (p.ddecay) p.ddecay[head.b * p.heads + head.h] = ddecay;
  }

  // Writes dq, and keeps what the way back needs. Returns the tick-weighted sum of what the queries
  // received, of which only epsilon's share is left: they divide by all they receive.
  static double queries(const Head<D>& head, float* S, const Saved& all) {
    const Problem& p = head.p;
    zero(S, D * D);
    alignas(64) float v_copy[SIZE], dout_copy[SIZE], u[SIZE], dw[SIZE], x[SIZE], y[SIZE];
    alignas(64) float inverse[SIZE], factor[C], n[C], z[D] = {};
    float seen = 0;
    double received = 0;
    for (int64_t chunk = 0; chunk < head.chunks; ++chunk) {
      const int count = head.in_chunk(chunk);
      const Saved saved = all.at(chunk);
      head.features.keys(head.load(p.k, chunk, v_copy), count, saved.factor, saved.f);
      head.features.columns(saved.f, x);
      head.running_up(x, z, x);
      head.count_up(seen, n);
      head.features.queries(head.load(p.q, chunk, v_copy), count, factor, u);
      head.features.divided(u, x, n, inverse, saved.w);
      const View<D> v = head.load(p.v, chunk, v_copy), dout = head.load(p.dout, chunk, dout_copy);
      head.template answer<Part::lower>(head.up, head.up.including, dout, v, saved.f, S, dw,
                                        saved.near);
      head.absorb(head.up, v, saved.f, S);
      if (p.ddecay) {
        for (int i = 0; i < SIZE; ++i) y[i] = dw[i] * EPSILON * inverse[i] * inverse[i];
        received += head.ticked(chunk, saved.w, y);
      }
      head.features.divided_back(u, saved.w, x, n, inverse, dw, saved.dz, saved.dn);
      head.features.queries_back(u, factor, dw);
      head.store(dw, p.dq, chunk);
    }
    return received;
  }

  // The tick-weighted sum of what one chunk's keys gave to later queries and to their divisors.
  static double given(const Head<D>& head, int64_t chunk, const Saved& saved,
                      const float* df, const float* dz, float& dn) {
    alignas(64) float each[SIZE];
    for (int i = 0; i < SIZE; ++i) each[i] = df[i] + saved.f[i] * dz[i];
    double total = head.ticked(chunk, saved.f, each);
    for (int c = C - 1; c >= 0; --c) {
      dn = head.g * dn + saved.dn[c];
      if (c < head.in_chunk(chunk)) total += static_cast<double>(chunk * C + c) * dn;
    }
    return total;
  }
};

}  // namespace linrec::LINREC_ISA
