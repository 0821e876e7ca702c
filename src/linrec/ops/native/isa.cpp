// One instruction set's code for every width; compiled once for each, see CMakeLists.txt.
#include "around.hpp"

namespace linrec::LINREC_ISA {

// More than any form takes: nine rows and four numbers a position, three states.
template <int D>
int64_t scratch_of(const Problem& p) {
  const int64_t positions = (p.length + C - 1) / C * C;
  return positions * (9 * D + 4) + 3 * D * D + 16 * 16;
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

#define LINREC_TEXT_OF(x) #x
#define LINREC_TEXT(x) LINREC_TEXT_OF(x)

template <int D>
constexpr Kernels kernels_of() {
  return {LINREC_TEXT(LINREC_ISA), scratch_of<D>, forward_of<D>, backward_of<D>};
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
