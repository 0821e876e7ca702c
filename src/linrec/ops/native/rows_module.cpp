// linrec.ops._native: the kernels that take numbers row by row.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>

#include <optional>
#include <tuple>
#include <vector>

#include "bindings.hpp"
#include "parallel_for.hpp"

namespace nb = nanobind;

namespace linrec {
namespace {

using Matrix = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Flat = nb::ndarray<nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Vector = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Scores = nb::ndarray<nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Heads = nb::ndarray<nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using Indices = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Seen = std::tuple<Indices, Indices, Indices>;  // linrec.types.SeenItems, field by field

// numbers per task of an elementwise kernel
constexpr int64_t PIECE = 1 << 14;

// rows per task of a head's norm
constexpr int64_t NORM_ROWS = 128;

void check_indices(const int64_t* indices, int64_t count, int64_t size, int64_t first = 0) {
  for (int64_t i = 0; i < count; ++i)
    if (indices[i] < first || indices[i] >= first + size)
      throw std::invalid_argument("an item lies outside the scores");
}

// The gradient of each row's cross-entropy, times the sum of its exponentials, in place of its
// scores. Items starts[r] to starts[r] + counts[r] - 1 of `hidden` do not compete in row r.
void cross_entropy(const Scores& scores, const Indices& labels, const std::optional<Seen>& seen,
                   int64_t first_item, int threads, const Vector& total, const Vector& loss) {
  const int64_t rows = scores.shape(0), size = scores.shape(1);
  if (static_cast<int64_t>(labels.shape(0)) != rows ||
      static_cast<int64_t>(total.shape(0)) != rows || static_cast<int64_t>(loss.shape(0)) != rows)
    throw std::invalid_argument("labels, total and loss must have one number per row");
  check_indices(labels.data(), rows, size);
  if (seen) {
    const auto& [items, starts, counts] = *seen;
    if (static_cast<int64_t>(starts.shape(0)) != rows ||
        static_cast<int64_t>(counts.shape(0)) != rows)
      throw std::invalid_argument("starts and counts must have one number per row");
    for (int64_t r = 0; r < rows; ++r)
      if (starts.data()[r] < 0 || counts.data()[r] < 0 ||
          starts.data()[r] + counts.data()[r] > static_cast<int64_t>(items.shape(0)))
        throw std::invalid_argument("a row's seen items lie outside the list");
    check_indices(items.data(), items.shape(0), size, first_item);
  }
  const DType dtype = dtype_of(scores);
  struct Context {
    char* scores;
    DType dtype;
    int64_t size, first_item;
    const int64_t *labels, *items, *starts, *counts;
    float *total, *loss;
    decltype(Kernels::cross_entropy) work;
  } context{static_cast<char*>(scores.data()), dtype, size, first_item, labels.data(),
            seen ? std::get<0>(*seen).data() : nullptr,
            seen ? std::get<1>(*seen).data() : nullptr,
            seen ? std::get<2>(*seen).data() : nullptr,
            total.data(), loss.data(), kernels(8).cross_entropy};
  const nb::gil_scoped_release released;
  parallel_for(rows, useful_threads(threads, rows * size), [](void* given, int64_t r) {
    const Context& c = *static_cast<const Context*>(given);
    thread_local std::vector<float> wide;
    const bool narrow = c.dtype != DType::float32;
    if (narrow && static_cast<int64_t>(wide.size()) < c.size) wide.resize(c.size);
    c.work({c.scores + r * c.size * (narrow ? 2 : 4), c.dtype, c.size, c.labels[r],
            c.items ? c.items + c.starts[r] : nullptr, c.items ? c.counts[r] : 0, c.first_item,
            wide.data(), c.total + r, c.loss + r});
  }, &context);
}

// What both directions of a head's norm have in common: x, out (or dx) [rows, heads, width].
HeadNorm head_norm_call(const Heads& x, const Matrix& scale, float epsilon, const Heads& out) {
  for (int i = 0; i < 3; ++i)
    if (x.shape(i) != out.shape(i)) throw std::invalid_argument("x and out must have one shape");
  if (out.dtype() != x.dtype() || scale.shape(0) != x.shape(1) || scale.shape(1) != x.shape(2))
    throw std::invalid_argument("out must have the type of x, and scale its heads and width");
  const int64_t width = x.shape(2);
  if (width < 8 || width > MAX_WIDTH || (width & (width - 1)))
    throw std::invalid_argument("the norm of a head takes widths of 8, 16, 32, 64 and 128");
  return {static_cast<const char*>(x.data()), nullptr, static_cast<char*>(out.data()),
          dtype_of(x), scale.data(), static_cast<int64_t>(x.shape(1)), epsilon};
}

void head_norm(const Heads& x, const Matrix& scale, float epsilon, int threads, const Heads& out) {
  struct Context {
    HeadNorm p;
    int64_t rows;
    decltype(Kernels::head_norm) work;
  } context{head_norm_call(x, scale, epsilon, out), static_cast<int64_t>(x.shape(0)),
            kernels(x.shape(2)).head_norm};
  const nb::gil_scoped_release released;
  const int64_t pieces = (context.rows + NORM_ROWS - 1) / NORM_ROWS;
  parallel_for(pieces, useful_threads(threads, x.size()), [](void* given, int64_t i) {
    const Context& c = *static_cast<const Context*>(given);
    c.work(c.p, i * NORM_ROWS, std::min((i + 1) * NORM_ROWS, c.rows));
  }, &context);
}

// dscale: [pieces of NORM_ROWS rows, heads * width], zeros before; its sum is the gradient of scale
// and does not depend on the threads.
void head_norm_backward(const Heads& x, const Matrix& scale, float epsilon, int threads,
                        const Heads& dout, const Heads& dx, const Matrix& dscale) {
  struct Context {
    HeadNorm p;
    int64_t rows, size;
    float* dscale;
    decltype(Kernels::head_norm_backward) work;
  } context{head_norm_call(x, scale, epsilon, dx), static_cast<int64_t>(x.shape(0)),
            static_cast<int64_t>(scale.size()), dscale.data(),
            kernels(x.shape(2)).head_norm_backward};
  head_norm_call(x, scale, epsilon, dout);  // its checks
  context.p.dout = static_cast<const char*>(dout.data());
  const int64_t pieces = (context.rows + NORM_ROWS - 1) / NORM_ROWS;
  if (static_cast<int64_t>(dscale.shape(0)) != pieces ||
      static_cast<int64_t>(dscale.shape(1)) != context.size)
    throw std::invalid_argument("dscale must have one row per piece");
  const nb::gil_scoped_release released;
  parallel_for(pieces, useful_threads(threads, x.size()), [](void* given, int64_t i) {
    const Context& c = *static_cast<const Context*>(given);
    c.work(c.p, i * NORM_ROWS, std::min((i + 1) * NORM_ROWS, c.rows), c.dscale + i * c.size);
  }, &context);
}

void dropout(const Flat& x, uint64_t seed, int threshold, float scale, int threads,
             const Flat& out, int64_t first) {
  const int64_t size = x.shape(0);
  if (first < 0 || first % (2 * BLOCK))
    throw std::invalid_argument("the first index must be a multiple of two blocks");
  if (static_cast<int64_t>(out.shape(0)) != size || out.dtype() != x.dtype())
    throw std::invalid_argument("x and out must have the same size and type");
  struct Context {
    const char* x;
    char* out;
    DType dtype;
    int64_t size;
    Draw draw;
    decltype(Kernels::dropout) work;
  } context{static_cast<const char*>(x.data()), static_cast<char*>(out.data()), dtype_of(x), size,
            {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), threshold, scale,
             first},
            kernels(8).dropout};
  const nb::gil_scoped_release released;
  const int64_t pieces = (size + PIECE - 1) / PIECE;
  parallel_for(pieces, useful_threads(threads, size), [](void* given, int64_t i) {
    const Context& c = *static_cast<const Context*>(given);
    c.work(c.x, c.out, c.dtype, i * PIECE, std::min((i + 1) * PIECE, c.size), c.draw);
  }, &context);
}

}  // namespace

void define_rows(nb::module_& module) {
  module.def("dropout", &dropout, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(),
             nb::arg("first") = 0);
  module.def("cross_entropy", &cross_entropy, nb::arg(), nb::arg(), nb::arg().none(),
             nb::arg(), nb::arg(), nb::arg(), nb::arg());
  module.attr("NORM_ROWS") = NORM_ROWS;
  module.def("head_norm", &head_norm);
  module.def("head_norm_backward", &head_norm_backward);
}

}  // namespace linrec
