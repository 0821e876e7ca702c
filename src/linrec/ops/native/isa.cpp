// One instruction set's code for every width; compiled once for each, see CMakeLists.txt.
#include "around.hpp"

namespace linrec::LINREC_ISA {

// More than any form takes: nine rows and C + 4 numbers a position, three states.
template <int D>
int64_t scratch_of(const Problem& p) {
  const int64_t positions = (p.length + C - 1) / C * C;
  return positions * (9 * D + C + 4) + 3 * D * D + 16 * 16;
}

template <int D>
void forward_of(const Problem& p, int64_t b, int64_t h, float* scratch) {
  const Head<D> head(p, b, h);
  const Shelf shelf{scratch};
  if (p.causal) Causal<D>::forward(head, shelf);
  else if (p.decay) Around<D>::forward(head, shelf);
  else Whole<D>::forward(head, shelf);
  head.clear_padding(p.out);
}

template <int D>
void backward_of(const Problem& p, int64_t b, int64_t h, float* scratch) {
  const Head<D> head(p, b, h);
  const Shelf shelf{scratch};
  if (p.causal) Causal<D>::backward(head, shelf);
  else if (p.decay) Around<D>::backward(head, shelf);
  else Whole<D>::backward(head, shelf);
  head.clear_padding(p.dq);
  head.clear_padding(p.dk);
  head.clear_padding(p.dv);
}

// One row of scores becomes exp(score - largest).
void exponentials(float* x, int64_t size, float* largest, float* whole) {
  constexpr int L = 32;
  float most = -INFINITY, tops[L], sums[L] = {};
  for (int l = 0; l < L; ++l) tops[l] = most;
  int64_t i = 0;
  for (; i + L <= size; i += L)
    for (int l = 0; l < L; ++l) tops[l] = x[i + l] > tops[l] ? x[i + l] : tops[l];
  for (; i < size; ++i) most = x[i] > most ? x[i] : most;
  for (int l = 0; l < L; ++l) most = tops[l] > most ? tops[l] : most;
  for (i = 0; i + L <= size; i += L)
    for (int l = 0; l < L; ++l) {
      const Exponential e = exponential(x[i + l] - most);
      x[i + l] = e.power * e.rest + e.power;
      sums[l] += x[i + l];
    }
  float rest = 0;
  for (; i < size; ++i) {
    const Exponential e = exponential(x[i] - most);
    rest += x[i] = e.power * e.rest + e.power;
  }
  *largest = most;
  *whole = sum<L>(sums) + rest;
}

LINREC_INLINE uint32_t mixed(uint32_t x) {  // every bit of x moves every bit of this
  x = (x ^ (x >> 16)) * 0x21f0aaadu;
  x = (x ^ (x >> 15)) * 0x735a2d97u;
  return x ^ (x >> 15);
}

// Numbers begin to end - 1. The draw of each follows from the seed and its place, so that the way
// back can repeat it: ops/dropout.py has the same in torch. A counter decides on two numbers, BLOCK
// apart, so that neither lanes nor halves of them change places.
void dropout(const float* x, float* to, int64_t begin, int64_t end, Draw draw) {
  alignas(64) float weight[2 * BLOCK];
  const float scale = draw.scale;  // a copy: loaded in a choice, it would keep it from vectors
  for (int64_t i = begin; i < end; i += 2 * BLOCK) {
    const uint32_t first = static_cast<uint32_t>(i / 2);
    for (int l = 0; l < BLOCK; ++l) {
      const uint32_t bits = mixed(mixed((first + l) ^ draw.low) + draw.high);
      weight[l] = static_cast<int32_t>(bits & 0xffff) < draw.dropped ? 0.0f : scale;
      weight[BLOCK + l] = static_cast<int32_t>(bits >> 16) < draw.dropped ? 0.0f : scale;
    }
    if (end - i >= 2 * BLOCK)
      for (int l = 0; l < 2 * BLOCK; ++l) to[i + l] = weight[l] * x[i + l];
    else
      for (int l = 0; l < end - i; ++l) to[i + l] = weight[l] * x[i + l];
  }
}

#define LINREC_TEXT_OF(x) #x
#define LINREC_TEXT(x) LINREC_TEXT_OF(x)

template <int D>
constexpr Kernels kernels_of() {
  return {LINREC_TEXT(LINREC_ISA), scratch_of<D>, forward_of<D>, backward_of<D>,
          exponentials, dropout};
}

// The kernels of the next width that is as wide: the features between are zeros.
const Kernels& kernels(int64_t width) {
  static constexpr Kernels of[] = {kernels_of<8>(), kernels_of<16>(), kernels_of<32>(),
                                   kernels_of<64>(), kernels_of<128>()};
  int which = 0;
  while ((8 << which) < width) ++which;
  return of[which];
}

}  // namespace linrec::LINREC_ISA
