// Causal linear attention and its gradient, one chunk of C positions at a time.
//
//   f = key features     S_t = g S_(t-1) + f v^T    z_t = g z_(t-1) + f^2    n_t = g n_(t-1) + 1
//   u = query features   w = u / sqrt(n z)          out_t = w S_t
//
// The gradient runs over R_t = g R_(t+1) + w_t dout_t^T:  dw = S dout, df = R v + 2 f Z,
// dv = R^T f, where Z is the same sum of dz. All are the same step, Head::attend_chunk, on other
// operands; df reads R transposed, Head::attend_transposed.
//
// The gradient of log g needs no state of its own: a pair of events counts exp(distance log g), so
// it is the sum over events of position * (what they received - what they gave).
#pragma once

#include "arena.hpp"
#include "head.hpp"

namespace linrec::LINREC_ISA {

template <int D>
struct Causal {
  static constexpr int SIZE = C * D;

  struct Forward {
    float* S;

    Forward(int64_t, Arena& arena) : S(arena.take(D * D)) {}
  };

  // What the pass from the last position to the first needs of each position.
  struct Saved {
    float *w, *f, *dz, *scores, *dn, *key_factor;

    Saved(int64_t chunks, Arena& arena)
        : w(arena.take(chunks * SIZE)), f(arena.take(chunks * SIZE)),
          dz(arena.take(chunks * SIZE)), scores(arena.take(chunks * C * C)),
          dn(arena.take(chunks * C)), key_factor(arena.take(chunks * C)) {}

    Saved at(int64_t chunk) const {
      Saved there = *this;
      there.w += chunk * SIZE, there.f += chunk * SIZE, there.dz += chunk * SIZE;
      there.scores += chunk * C * C, there.dn += chunk * C, there.key_factor += chunk * C;
      return there;
    }
  };

  struct Backward {
    Saved saved;
    float* state;  // S, then R

    Backward(int64_t chunks, Arena& arena) : saved(chunks, arena), state(arena.take(D * D)) {}
  };

  static void forward(const Head<D>& head, const Forward& buffers) {
    const Problem& p = head.p;
    float* S = buffers.S;
    zero(S, D * D);
    alignas(64) float f[SIZE], w[SIZE], x[SIZE], y[SIZE], buffer[SIZE], factor[C], n[C], z[D] = {};
    float seen = 0;
    for (int64_t chunk = 0; chunk < head.chunks; ++chunk) {
      const int count = head.in_chunk(chunk);
      head.features.keys(head.load(p.k, chunk, buffer), count, factor, f);
      head.features.columns(f, x);
      head.scan_ascending(x, z, x);
      head.count_ascending(seen, n);
      head.features.queries(head.load(p.q, chunk, buffer), count, factor, w);
      head.features.divide(w, x, n, y, w);
      const View<D> v = head.load(p.v, chunk, buffer);
      head.template attend_chunk<Part::lower>(head.ascending, head.ascending.inclusive, w, f, v,
                                              S, x);
      head.store(x, p.out, chunk);
      head.update_state(head.ascending, f, v, S);
    }
  }

  static void backward(const Head<D>& head, const Backward& buffers) {
    const Problem& p = head.p;
    float* R = buffers.state;
    double ddecay = queries(head, R, buffers.saved);
    zero(R, D * D);
    alignas(64) float v_copy[SIZE], dout_copy[SIZE], dv[SIZE], df[SIZE], dz[SIZE], z[D] = {};
    float dn = 0;
    for (int64_t chunk = head.chunks - 1; chunk >= 0; --chunk) {
      const Saved saved = buffers.saved.at(chunk);
      const View<D> v = head.load(p.v, chunk, v_copy, -1);
      const View<D> dout = head.load(p.dout, chunk, dout_copy, -1);
      head.template attend_chunk<Part::upper>(head.descending, head.descending.inclusive, saved.f,
                                              saved.w, dout, R, dv);
      head.attend_transposed(head.descending, saved.scores, v, saved.w, R, df);
      head.store(dv, p.dv, chunk, -1);
      head.update_state(head.descending, saved.w, dout, R);
      head.scan_descending(saved.dz, z, dz);
      if (p.ddecay) ddecay -= given(head, chunk, saved, df, dz, dn);
      head.features.columns_backward(saved.f, dz, df);
      head.features.keys_backward(saved.f, saved.key_factor, df);
      head.store(df, p.dk, chunk, -1);
    }
    if (p.ddecay) p.ddecay[head.b * p.heads + head.h] = ddecay;
  }

  // Writes dq and fills `all`. Returns the position-weighted sum of what the queries received, of
  // which only epsilon's share is left: they divide by all they receive.
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
      head.features.keys(head.load(p.k, chunk, v_copy), count, saved.key_factor, saved.f);
      head.features.columns(saved.f, x);
      head.scan_ascending(x, z, x);
      head.count_ascending(seen, n);
      head.features.queries(head.load(p.q, chunk, v_copy), count, factor, u);
      head.features.divide(u, x, n, inverse, saved.w);
      const View<D> v = head.load(p.v, chunk, v_copy), dout = head.load(p.dout, chunk, dout_copy);
      head.template attend_chunk<Part::lower>(head.ascending, head.ascending.inclusive, dout, v,
                                              saved.f, S, dw, saved.scores);
      head.update_state(head.ascending, v, saved.f, S);
      if (p.ddecay) {
        for (int i = 0; i < SIZE; ++i) y[i] = dw[i] * EPSILON * inverse[i] * inverse[i];
        received += head.position_weighted(chunk, saved.w, y);
      }
      head.features.divide_backward(u, saved.w, x, n, inverse, dw, saved.dz, saved.dn);
      head.features.queries_backward(u, factor, dw);
      head.store(dw, p.dq, chunk);
    }
    return received;
  }

  // The position-weighted sum of what one chunk's keys gave to later queries and their normalisers.
  static double given(const Head<D>& head, int64_t chunk, const Saved& saved,
                      const float* df, const float* dz, float& dn) {
    alignas(64) float each[SIZE];
    for (int i = 0; i < SIZE; ++i) each[i] = df[i] + saved.f[i] * dz[i];
    double total = head.position_weighted(chunk, saved.f, each);
    for (int c = C - 1; c >= 0; --c) {
      dn = head.g * dn + saved.dn[c];
      if (c < head.in_chunk(chunk)) total += static_cast<double>(chunk * C + c) * dn;
    }
    return total;
  }
};

}  // namespace linrec::LINREC_ISA
