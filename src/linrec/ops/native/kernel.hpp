// LinRec's attention in one pass over the sequence, its state beside the registers.
//
// Compiled once for each instruction set: the includer names it in LINREC_ISA. Loops over a head's
// width run over a constant, so that the compiler unrolls and vectorises them.
//
//   f = phi(k)      S_t = g S_(t-1) + f v^T    z_t = g z_(t-1) + f^2    n_t = g n_(t-1) + 1
//   u = phi(q) / (sqrt(D) |phi(q)|)            w = u / sqrt(n z)        out_t = w S_t
//
// Backwards, with R_t = g R_(t+1) + w_t dout_t^T:  dw = S dout, df = R v + 2 f Z, dv = R^T f, where
// Z is the same sum of dz. The gradient of log g needs no state of its own: an event t ticks old
// counts exp(t log g), so it is the sum over events of tick * (what they received - what they gave).

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "problem.hpp"

namespace linrec::LINREC_ISA {

constexpr float EPSILON = 1e-8f;  // as in ops/mechanism.py

// 2^x by its integer part and a polynomial of the rest; relative error below 2e-7
inline float exponential(float x) {
  x = std::max(x, -87.0f) * 1.44269504f;
  const float whole = std::floor(x);
  const float r = x - whole;
  float p = 1.53533168e-4f;
  p = p * r + 1.33988744e-3f;
  p = p * r + 9.61843736e-3f;
  p = p * r + 5.55033012e-2f;
  p = p * r + 2.40226480e-1f;
  p = p * r + 6.93147202e-1f;
  p = p * r + 1.0f;
  const int32_t bits = (static_cast<int32_t>(whole) + 127) << 23;
  float scale;
  std::memcpy(&scale, &bits, sizeof scale);
  return p * scale;
}

template <bool ELU>
inline float phi(float x) {
  if constexpr (!ELU) return x;
  const float low = exponential(std::min(x, 0.0f)) - 1.0f;
  return x > 0 ? x : low;
}

// phi'(x), given phi(x)
template <bool ELU>
inline float slope(float x, float value) {
  if constexpr (!ELU) return 1.0f;
  return x > 0 ? 1.0f : value + 1.0f;
}

template <typename T>
struct Number;
template <>
struct Number<float> {
  static float read(const float* p) { return *p; }
  static void write(float* p, float x) { *p = x; }
};
template <>
struct Number<bfloat16> {
  static float read(const bfloat16* p) {
    const uint32_t bits = static_cast<uint32_t>(p->bits) << 16;
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
  }
  static void write(bfloat16* p, float x) {  // to nearest, ties to even
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    p->bits = std::isnan(x) ? 0x7fc0 : static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  }
};

// Some numbers of each position, kept from one pass to the next.
struct Scratch {
  std::vector<float> numbers;

  float* need(int64_t count) {
    if (static_cast<int64_t>(numbers.size()) < count) numbers.resize(count);
    return numbers.data();
  }
};

// D is the head's width, or 0 where it is only known at run time.
template <int D>
struct Width {
  explicit Width(int64_t width) : given(width) {}
  int operator()() const { return D ? D : static_cast<int>(given); }
  int64_t given;
};

constexpr int WIDEST = 256;

template <typename T>
inline void read(const T* from, float* to, int d) {
  for (int i = 0; i < d; ++i) to[i] = Number<T>::read(from + i);
}

template <typename T>
inline void write(const float* from, T* to, int d) {
  for (int i = 0; i < d; ++i) Number<T>::write(to + i, from[i]);
}

inline float dot(const float* a, const float* b, int d) {
  float sum = 0;
  for (int i = 0; i < d; ++i) sum += a[i] * b[i];
  return sum;
}

// The widest registers at hand, without an intrinsic.
using Lane = float __attribute__((vector_size(LINREC_LANES * 4), aligned(4), may_alias));

// state[i] = g state[i] + a[i] b, then to += c[i] state[i], over the rows i of a square state.
// With AFTER the question comes first, and the state is handed on as the next position finds it.
template <int D, bool AFTER = false>
inline void step(float* state, float g, const float* a, const float* b, const float* c, float* to,
                 int d) {
  if constexpr (D % LINREC_LANES == 0 && D > 0) {
    constexpr int M = D / LINREC_LANES;
    Lane added[M], sum[M] = {};
    for (int m = 0; m < M; ++m) added[m] = reinterpret_cast<const Lane*>(b)[m];
    for (int i = 0; i < D; ++i) {
      Lane* row = reinterpret_cast<Lane*>(state + i * D);
      for (int m = 0; m < M; ++m) {
        if constexpr (AFTER) {
          sum[m] += c[i] * row[m];
          row[m] = g * (row[m] + a[i] * added[m]);
        } else {
          row[m] = g * row[m] + a[i] * added[m];
          sum[m] += c[i] * row[m];
        }
      }
    }
    for (int m = 0; m < M; ++m) reinterpret_cast<Lane*>(to)[m] += sum[m];
  } else {
    for (int i = 0; i < d; ++i) {
      float* row = state + i * d;
      for (int j = 0; j < d; ++j) {
        if constexpr (AFTER) {
          to[j] += c[i] * row[j];
          row[j] = g * (row[j] + a[i] * b[j]);
        } else {
          row[j] = g * row[j] + a[i] * b[j];
          to[j] += c[i] * row[j];
        }
      }
    }
  }
}

// One head of one sequence: its rows, and the sums that its queries are divided by.
template <int D, typename T, bool ELU>
struct Head {
  const Forward<T>& p;
  const int64_t b, h;
  const Width<D> width{p.width};
  const uint8_t* keep = p.keep ? p.keep + b * p.length : nullptr;
  const float g = p.decay ? std::exp(p.decay[h]) : 1.0f;
  const float scale = 1.0f / std::sqrt(static_cast<float>(p.width));

  bool kept(int64_t t) const { return !keep || keep[t]; }

  // f = phi(k), zero for no reason but padding, which is skipped
  void key(int64_t t, float* f) const {
    read(p.k.at(b, h) + t * p.k.row, f, width());
    for (int i = 0; i < width(); ++i) f[i] = phi<ELU>(f[i]);
  }

  void value(int64_t t, float* v) const { read(p.v.at(b, h) + t * p.v.row, v, width()); }

  // u = phi(q) / (sqrt(D) |phi(q)|); returns the factor that made u of phi(q)
  float query(int64_t t, float* q, float* u) const {
    read(p.q.at(b, h) + t * p.q.row, q, width());
    float square = 0;
    for (int i = 0; i < width(); ++i) {
      u[i] = phi<ELU>(q[i]);
      square += u[i] * u[i];
    }
    const float factor = scale / std::sqrt(square + EPSILON);
    for (int i = 0; i < width(); ++i) u[i] *= factor;
    return factor;
  }

  // w = u / sqrt(n z)
  void divide(const float* u, const float* z, float n, float* inverse, float* w) const {
    for (int i = 0; i < width(); ++i) {
      inverse[i] = 1.0f / std::sqrt(n * z[i] + EPSILON);
      w[i] = u[i] * inverse[i];
    }
  }

  // z = g z + f^2
  void add_squares(float* z, const float* f) const {
    for (int i = 0; i < width(); ++i) z[i] = g * z[i] + f[i] * f[i];
  }

  // z = g (z + f^2)
  void hand_on_squares(float* z, const float* f) const {
    for (int i = 0; i < width(); ++i) z[i] = g * (z[i] + f[i] * f[i]);
  }
};

// The sums of squares and counts that both sides of each position add up to.
struct Sides {
  float *past_z, *future_z, *past_n, *future_n;  // past: with the position itself, future: without
};

template <int D, typename T, bool ELU>
void sum_both_sides(const Head<D, T, ELU>& head, const Sides& sides) {
  const int d = head.width();
  float f[D ? D : WIDEST], z[D ? D : WIDEST] = {}, n = 0;
  for (int64_t t = 0; t < head.p.length; ++t) {
    if (!head.kept(t)) continue;
    head.key(t, f);
    head.add_squares(z, f);
    n = head.g * n + 1;
    std::copy(z, z + d, sides.past_z + t * d);
    sides.past_n[t] = n;
  }
  std::fill(z, z + d, 0.0f);
  n = 0;
  for (int64_t t = head.p.length - 1; t >= 0; --t) {
    if (!head.kept(t)) continue;
    head.key(t, f);
    std::copy(z, z + d, sides.future_z + t * d);
    sides.future_n[t] = n;
    head.hand_on_squares(z, f);
    n = head.g * (n + 1);
  }
}

template <int D, typename T, bool ELU>
void forward_causal(const Head<D, T, ELU>& head, Scratch& scratch) {
  const int d = head.width();
  float* S = scratch.need(d * d);
  std::fill(S, S + d * d, 0.0f);
  float f[D ? D : WIDEST], v[D ? D : WIDEST], q[D ? D : WIDEST], u[D ? D : WIDEST];
  float inverse[D ? D : WIDEST], out[D ? D : WIDEST], z[D ? D : WIDEST] = {}, n = 0;
  T* to = head.p.out.at(head.b, head.h);
  for (int64_t t = 0; t < head.p.length; ++t) {
    std::fill(out, out + d, 0.0f);
    if (head.kept(t)) {
      head.key(t, f);
      head.value(t, v);
      head.query(t, q, u);
      head.add_squares(z, f);
      n = head.g * n + 1;
      head.divide(u, z, n, inverse, u);
      step<D>(S, head.g, f, v, u, out, d);
    }
    write(out, to + t * head.p.out.row, d);
  }
}

template <int D, typename T, bool ELU>
void forward_around(const Head<D, T, ELU>& head, Scratch& scratch) {
  const int d = head.width();
  const int64_t N = head.p.length, each = N * d;
  float* S = scratch.need(d * d + 4 * each + 2 * N);
  const Sides sides{S + d * d, S + d * d + each, S + d * d + 4 * each, S + d * d + 4 * each + N};
  float *W = S + d * d + 2 * each, *O = W + each;
  sum_both_sides(head, sides);
  float f[D ? D : WIDEST], v[D ? D : WIDEST], q[D ? D : WIDEST], z[D ? D : WIDEST];
  float inverse[D ? D : WIDEST];
  std::fill(S, S + d * d, 0.0f);
  for (int64_t t = N - 1; t >= 0; --t) {  // what comes after each position
    float* out = O + t * d;
    std::fill(out, out + d, 0.0f);
    if (!head.kept(t)) continue;
    head.key(t, f);
    head.value(t, v);
    head.query(t, q, W + t * d);
    for (int i = 0; i < d; ++i) z[i] = sides.past_z[t * d + i] + sides.future_z[t * d + i];
    head.divide(W + t * d, z, sides.past_n[t] + sides.future_n[t], inverse, W + t * d);
    step<D, true>(S, head.g, f, v, W + t * d, out, d);
  }
  std::fill(S, S + d * d, 0.0f);
  T* to = head.p.out.at(head.b, head.h);
  for (int64_t t = 0; t < N; ++t) {  // the position itself and what came before
    if (head.kept(t)) {
      head.key(t, f);
      head.value(t, v);
      step<D>(S, head.g, f, v, W + t * d, O + t * d, d);
    }
    write(O + t * d, to + t * head.p.out.row, d);
  }
}

// What the gradient of one position's weight row w tells of its query and of the sums.
template <int D, typename T, bool ELU>
struct QueryGradient {
  float w[D ? D : WIDEST], dz[D ? D : WIDEST], dn;

  // dw: of the row w; z, n: the sums it was divided by. Writes the gradient of q.
  void operator()(const Head<D, T, ELU>& head, int64_t t, const float* dw, const float* z, float n,
                  T* to) {
    const int d = head.width();
    float q[D ? D : WIDEST], u[D ? D : WIDEST], inverse[D ? D : WIDEST], dq[D ? D : WIDEST];
    const float factor = head.query(t, q, u);
    head.divide(u, z, n, inverse, w);
    float along = 0, total = 0;
    for (int i = 0; i < d; ++i) {
      const float half = -0.5f * dw[i] * w[i] * inverse[i] * inverse[i];
      dz[i] = half * n;
      total += half * z[i];
      dq[i] = dw[i] * inverse[i];  // of u
      along += dq[i] * u[i];
    }
    dn = total;
    // u is phi(q) times its factor, whose own gradient takes out what lies along u
    const float shrink = along * factor / (head.scale * head.scale);
    for (int i = 0; i < d; ++i) {
      const float value = u[i] / factor;
      dq[i] = (dq[i] * factor - shrink * u[i]) * slope<ELU>(q[i], value);
    }
    write(dq, to, d);
  }
};

// dk of df, the gradient of f = phi(k)
template <int D, typename T, bool ELU>
void finish_key(const Head<D, T, ELU>& head, int64_t t, const float* f, float* df, T* to) {
  const T* k = head.p.k.at(head.b, head.h) + t * head.p.k.row;
  for (int i = 0; i < head.width(); ++i) df[i] *= slope<ELU>(Number<T>::read(k + i), f[i]);
  write(df, to, head.width());
}

template <int D, typename T, bool ELU, bool CAUSAL>
void backward_head(const Backward<T>& back, const Head<D, T, ELU>& head, Scratch& scratch) {
  const int d = head.width();
  const int64_t N = head.p.length, each = N * d, b = head.b, h = head.h;
  constexpr int W = D ? D : WIDEST;
  float* S = scratch.need(3 * d * d + (CAUSAL ? 2 : 7) * each + (CAUSAL ? 1 : 3) * N);
  float *R = S + d * d, *Rt = R + d * d;
  float *keep_w = Rt + d * d, *keep_dz = keep_w + each, *rest = keep_dz + each;
  float* keep_dn = rest + (CAUSAL ? 0 : 5) * each;
  float *keep_dw = rest, *keep_df = rest + each, *keep_dv = rest + 2 * each;  // around only
  const Sides sides{rest + 3 * each, rest + 4 * each, keep_dn + N, keep_dn + 2 * N};
  float f[W], v[W], dout[W], dw[W], df[W], dv[W], z[W] = {}, n = 0;
  QueryGradient<D, T, ELU> gradient;
  const T* from = back.dout.at(b, h);
  T *dq = back.dq.at(b, h), *dk = back.dk.at(b, h), *dvs = back.dv.at(b, h);
  double tick = 0, ddecay = 0;  // ticks: real events so far
  const auto zero = [&](T* to) { for (int i = 0; i < d; ++i) Number<T>::write(to + i, 0.0f); };
  if constexpr (!CAUSAL) sum_both_sides(head, sides);

  std::fill(S, S + 3 * d * d, 0.0f);
  for (int64_t t = 0; t < N; ++t) {  // S of the past; around: R of the past too
    if (!head.kept(t)) {
      zero(dq + t * back.dq.row);
      continue;
    }
    head.key(t, f);
    head.value(t, v);
    read(from + t * back.dout.row, dout, d);
    std::fill(dw, dw + d, 0.0f);
    step<D>(S, head.g, v, f, dout, dw, d);  // S transposed, so that S dout runs along its rows
    tick += 1;
    if constexpr (CAUSAL) {
      head.add_squares(z, f);
      n = head.g * n + 1;
      gradient(head, t, dw, z, n, dq + t * back.dq.row);
      std::copy(gradient.w, gradient.w + d, keep_w + t * d);
      std::copy(gradient.dz, gradient.dz + d, keep_dz + t * d);
      keep_dn[t] = gradient.dn;
      const float own = dot(v, dout, d);
      float received = gradient.dn * (n - 1);
      for (int i = 0; i < d; ++i)
        received += gradient.w[i] * (dw[i] - f[i] * own) + gradient.dz[i] * (z[i] - f[i] * f[i]);
      ddecay += tick * received;
    } else {
      float q[W], inverse[W], *w = keep_w + t * d;
      head.query(t, q, w);
      for (int i = 0; i < d; ++i) z[i] = sides.past_z[t * d + i] + sides.future_z[t * d + i];
      head.divide(w, z, sides.past_n[t] + sides.future_n[t], inverse, w);
      std::copy(dw, dw + d, keep_dw + t * d);
      std::fill(keep_df + t * d, keep_df + t * d + d, 0.0f);
      std::fill(keep_dv + t * d, keep_dv + t * d + d, 0.0f);
      step<D, true>(Rt, head.g, dout, w, v, keep_df + t * d, d);
      step<D, true>(R, head.g, w, dout, f, keep_dv + t * d, d);
      const float own = dot(v, dout, d);
      float moved = 0;
      for (int i = 0; i < d; ++i)
        moved += w[i] * (dw[i] - f[i] * own) + f[i] * keep_df[t * d + i];
      ddecay += tick * moved;
    }
  }

  std::fill(S, S + 3 * d * d, 0.0f);
  std::fill(z, z + d, 0.0f);
  n = 0;  // now z and n sum the gradients of those they summed
  for (int64_t t = N - 1; t >= 0; --t) {  // R of the future; around: S of the future too
    if (!head.kept(t)) {
      zero(dk + t * back.dk.row);
      zero(dvs + t * back.dv.row);
      continue;
    }
    head.key(t, f);
    head.value(t, v);
    read(from + t * back.dout.row, dout, d);
    const float *w = keep_w + t * d, *dz = keep_dz + t * d;
    float moved = 0;
    if constexpr (!CAUSAL) {
      std::fill(dw, dw + d, 0.0f);
      step<D, true>(S, head.g, v, f, dout, dw, d);
      for (int i = 0; i < d; ++i) moved += w[i] * dw[i];
      float all[W], sum[W];
      for (int i = 0; i < d; ++i) {
        all[i] = keep_dw[t * d + i] + dw[i];
        sum[i] = sides.past_z[t * d + i] + sides.future_z[t * d + i];
      }
      gradient(head, t, all, sum, sides.past_n[t] + sides.future_n[t], dq + t * back.dq.row);
      std::copy(gradient.dz, gradient.dz + d, keep_dz + t * d);
      keep_dn[t] = gradient.dn;
    }
    const float dn = keep_dn[t], own = dot(v, dout, d);
    for (int i = 0; i < d; ++i) {
      z[i] = head.g * z[i] + dz[i];
      df[i] = CAUSAL ? 0.0f : keep_df[t * d + i];
      dv[i] = CAUSAL ? 0.0f : keep_dv[t * d + i];
    }
    n = head.g * n + dn;
    float given[W] = {};
    step<D>(Rt, head.g, dout, w, v, given, d);
    step<D>(R, head.g, w, dout, f, dv, d);
    moved += n - dn;
    for (int i = 0; i < d; ++i) {
      moved += f[i] * (given[i] - w[i] * own) + f[i] * f[i] * (z[i] - dz[i]);
      df[i] += given[i] + 2 * f[i] * z[i];
    }
    ddecay -= tick * moved;
    tick -= 1;
    write(dv, dvs + t * back.dv.row, d);
    if constexpr (CAUSAL) {
      finish_key<D, T, ELU>(head, t, f, df, dk + t * back.dk.row);
    } else {
      std::copy(df, df + d, keep_df + t * d);
    }
  }

  if constexpr (!CAUSAL) {  // dz of the past, now that all of it is known
    std::fill(z, z + d, 0.0f);
    n = 0, tick = 0;
    for (int64_t t = 0; t < N; ++t) {
      if (!head.kept(t)) continue;
      head.key(t, f);
      tick += 1;
      const float *dz = keep_dz + t * d, *past = sides.past_z + t * d, *future = sides.future_z + t * d;
      const float dn = keep_dn[t];
      float moved = dn * (sides.past_n[t] - 1) - dn * sides.future_n[t] + n;
      for (int i = 0; i < d; ++i) {
        moved += dz[i] * (past[i] - f[i] * f[i] - future[i]) + f[i] * f[i] * z[i];
        df[i] = keep_df[t * d + i] + 2 * f[i] * z[i];
        z[i] = head.g * (z[i] + dz[i]);
      }
      n = head.g * (n + dn);
      ddecay += tick * moved;
      finish_key<D, T, ELU>(head, t, f, df, dk + t * back.dk.row);
    }
  }
  if (back.ddecay) back.ddecay[b * head.p.heads + h] = ddecay;
}

template <int D, typename T>
void run_forward(const Forward<T>& p, int64_t b, int64_t h, Scratch& scratch) {
  const auto run = [&](const auto& head) {
    if (p.causal) forward_causal(head, scratch);
    else forward_around(head, scratch);
  };
  if (p.elu) run(Head<D, T, true>{p, b, h});
  else run(Head<D, T, false>{p, b, h});
}

template <int D, typename T>
void run_backward(const Backward<T>& p, int64_t b, int64_t h, Scratch& scratch) {
  if (p.forward.elu) {
    const Head<D, T, true> head{p.forward, b, h};
    if (p.forward.causal) backward_head<D, T, true, true>(p, head, scratch);
    else backward_head<D, T, true, false>(p, head, scratch);
  } else {
    const Head<D, T, false> head{p.forward, b, h};
    if (p.forward.causal) backward_head<D, T, false, true>(p, head, scratch);
    else backward_head<D, T, false, false>(p, head, scratch);
  }
}

// Calls f with the width as a constant if it is a usual one, else with 0.
template <typename F>
void by_width(int64_t width, F f) {
  switch (width) {
    case 8: return f(std::integral_constant<int, 8>{});
    case 16: return f(std::integral_constant<int, 16>{});
    case 32: return f(std::integral_constant<int, 32>{});
    case 64: return f(std::integral_constant<int, 64>{});
    default: return f(std::integral_constant<int, 0>{});
  }
}

template <typename T>
void forward(const Forward<T>& p, int64_t b, int64_t h, Scratch& scratch) {
  by_width(p.width, [&](auto width) { run_forward<width(), T>(p, b, h, scratch); });
}

template <typename T>
void backward(const Backward<T>& p, int64_t b, int64_t h, Scratch& scratch) {
  by_width(p.forward.width, [&](auto width) { run_backward<width(), T>(p, b, h, scratch); });
}

}  // namespace linrec::LINREC_ISA
