// The kernels of one instruction set for every width; compiled once for each, see CMakeLists.txt.
#include "bidirectional.hpp"
#include "causal.hpp"
#include "step.hpp"

namespace linrec::LINREC_ISA {

// of step.cpp
void linear(const Linear&, int rows, const float* x, int64_t x_row, float* y, int64_t y_row);
void step(const StepStack&, int rows, const StepEvent* events, char* const* states, float* hidden,
          float* scratch);

// Calls `form` with the form of attention that the problem asks for.
template <int D, typename Form>
LINREC_INLINE auto dispatch(const Problem& p, Form form) {
  if (p.causal) return form(Causal<D>{});
  if (p.decay) return form(BidirectionalDecay<D>{});
  return form(Bidirectional<D>{});
}

int64_t max_chunks(const Problem& p) { return (p.length + C - 1) / C; }

template <int D>
int64_t forward_scratch(const Problem& p) {
  return dispatch<D>(p, [&](auto form) {
    return floats_for<typename decltype(form)::Forward>(max_chunks(p));
  });
}

template <int D>
int64_t backward_scratch(const Problem& p) {
  return dispatch<D>(p, [&](auto form) {
    return floats_for<typename decltype(form)::Backward>(max_chunks(p));
  });
}

template <int D>
void forward_of(const Problem& p, int64_t b, int64_t h, float* memory, int64_t floats) {
  const Head<D> head(p, b, h);
  Arena arena(memory, floats);
  dispatch<D>(p, [&](auto form) {
    form.forward(head, typename decltype(form)::Forward(head.chunks, arena));
  });
  head.clear_padding(p.out);
}

template <int D>
void backward_of(const Problem& p, int64_t b, int64_t h, float* memory, int64_t floats) {
  const Head<D> head(p, b, h);
  Arena arena(memory, floats);
  dispatch<D>(p, [&](auto form) {
    form.backward(head, typename decltype(form)::Backward(head.chunks, arena));
  });
  head.clear_padding(p.dq);
  head.clear_padding(p.dk);
  head.clear_padding(p.dv);
}

// One row of scores becomes exp(score - largest).
void exponentials(float* x, int64_t size, float* largest, float* total) {
  constexpr int L = 32;
  float top = -INFINITY, tops[L], sums[L] = {};
  for (int l = 0; l < L; ++l) tops[l] = top;
  int64_t i = 0;
  for (; i + L <= size; i += L)
    for (int l = 0; l < L; ++l) tops[l] = x[i + l] > tops[l] ? x[i + l] : tops[l];
  for (; i < size; ++i) top = x[i] > top ? x[i] : top;
  for (int l = 0; l < L; ++l) top = tops[l] > top ? tops[l] : top;
  for (i = 0; i + L <= size; i += L)
    for (int l = 0; l < L; ++l) {
      const Exponential e = exponential(x[i + l] - top);
      x[i + l] = e.power * e.rest + e.power;
      sums[l] += x[i + l];
    }
  float rest = 0;
  for (; i < size; ++i) {
    const Exponential e = exponential(x[i] - top);
    rest += x[i] = e.power * e.rest + e.power;
  }
  *largest = top;
  *total = sum<L>(sums) + rest;
}

LINREC_INLINE uint32_t mix_bits(uint32_t x) {  // every bit of x affects every bit of the result
  x = (x ^ (x >> 16)) * 0x21f0aaadu;
  x = (x ^ (x >> 15)) * 0x735a2d97u;
  return x ^ (x >> 15);
}

LINREC_INLINE float to_float(float x) { return x; }
LINREC_INLINE float to_float(uint16_t x) { return bfloat16_to_float(x); }
LINREC_INLINE void store(float* to, float x) { *to = x; }
LINREC_INLINE void store(uint16_t* to, float x) { *to = float_to_bfloat16(x); }

// Numbers begin to end - 1. The draw of each follows from the seed and its index, so that the
// backward pass can repeat it: ops/dropout.py has the same in torch. A counter decides on two
// numbers, BLOCK apart, so that no lanes have to be shuffled.
template <typename Number>
void dropout_of(const Number* x, Number* out, int64_t begin, int64_t end, Draw draw) {
  alignas(64) float weight[2 * BLOCK];
  const float scale = draw.scale;  // a copy: a load under a condition would prevent vectorisation
  for (int64_t i = begin; i < end; i += 2 * BLOCK) {
    const uint32_t first = static_cast<uint32_t>(i / 2);
    for (int l = 0; l < BLOCK; ++l) {
      const uint32_t bits = mix_bits(mix_bits((first + l) ^ draw.low) + draw.high);
      weight[l] = static_cast<int32_t>(bits & 0xffff) < draw.threshold ? 0.0f : scale;
      weight[BLOCK + l] = static_cast<int32_t>(bits >> 16) < draw.threshold ? 0.0f : scale;
    }
    if (end - i >= 2 * BLOCK)
      for (int l = 0; l < 2 * BLOCK; ++l) store(out + i + l, weight[l] * to_float(x[i + l]));
    else
      for (int l = 0; l < end - i; ++l) store(out + i + l, weight[l] * to_float(x[i + l]));
  }
}

void dropout(const char* x, char* out, DType dtype, int64_t begin, int64_t end, Draw draw) {
  if (dtype == DType::float32)
    dropout_of(reinterpret_cast<const float*>(x), reinterpret_cast<float*>(out), begin, end, draw);
  else
    dropout_of(reinterpret_cast<const uint16_t*>(x), reinterpret_cast<uint16_t*>(out), begin, end,
               draw);
}

#define LINREC_TEXT_OF(x) #x
#define LINREC_TEXT(x) LINREC_TEXT_OF(x)

template <int D>
constexpr Kernels kernels_of() {
  return {LINREC_TEXT(LINREC_ISA),
          {forward_scratch<D>, forward_of<D>},
          {backward_scratch<D>, backward_of<D>},
          exponentials,
          dropout,
          STEP_TILE * LINREC_LANES,
          linear,
          step};
}

// The kernels of the next larger width: the features beyond are zeros.
const Kernels& kernels(int64_t width) {
  static constexpr Kernels of[] = {kernels_of<8>(), kernels_of<16>(), kernels_of<32>(),
                                   kernels_of<64>(), kernels_of<128>()};
  int which = 0;
  while ((8 << which) < width) ++which;
  return of[which];
}

}  // namespace linrec::LINREC_ISA
