// The kernels of one instruction set for every width; compiled once for each, see CMakeLists.txt.
#include "bidirectional.hpp"
#include "causal.hpp"
#include "rows.hpp"
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

#define LINREC_TEXT_OF(x) #x
#define LINREC_TEXT(x) LINREC_TEXT_OF(x)

template <int D>
constexpr Kernels kernels_of() {
  return {LINREC_TEXT(LINREC_ISA),
          {forward_scratch<D>, forward_of<D>},
          {backward_scratch<D>, backward_of<D>},
          head_norm<D>,
          head_norm_backward<D>,
          cross_entropy,
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
