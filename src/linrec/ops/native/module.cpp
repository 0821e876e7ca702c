// linrec.ops._native: the kernels for Python. Tensors come by DLPack; nothing here knows torch.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "parallel_for.hpp"
#include "problem.hpp"
#include "repeats.hpp"
#include "step_model.hpp"

namespace nb = nanobind;

namespace linrec {

namespace portable {
const Kernels& kernels(int64_t width);
const RepeatKernels& repeat_kernels();
}
#if LINREC_X86
namespace avx2 {
const Kernels& kernels(int64_t width);
const RepeatKernels& repeat_kernels();
}
namespace avx512 {
const Kernels& kernels(int64_t width);
const RepeatKernels& repeat_kernels();
}
#endif

namespace {

using Tensor = nb::ndarray<nb::ndim<4>, nb::device::cpu>;
using Keep = nb::ndarray<const bool, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Decay = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Matrix = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Flat = nb::ndarray<nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Vector = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Scores = nb::ndarray<nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Heads = nb::ndarray<nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using Indices = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Seen = std::tuple<Indices, Indices, Indices>;  // linrec.types.SeenItems, field by field
using Seconds = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Counts = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using DecayGradient = nb::ndarray<double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// fewer multiplications than this are done before another thread has woken up
constexpr int64_t MIN_WORK_PER_THREAD = 1 << 18;

// numbers per task of an elementwise kernel
constexpr int64_t PIECE = 1 << 14;

// rows per task of a head's norm
constexpr int64_t NORM_ROWS = 128;

constexpr size_t ALIGNMENT = 64;  // bytes: a cache line, and the widest register

int useful_threads(int threads, int64_t work) {
  return static_cast<int>(std::min<int64_t>(threads, 1 + work / MIN_WORK_PER_THREAD));
}

void check_indices(const int64_t* indices, int64_t count, int64_t size, int64_t first = 0) {
  for (int64_t i = 0; i < count; ++i)
    if (indices[i] < first || indices[i] >= first + size)
      throw std::invalid_argument("an item lies outside the scores");
}

using Selector = const Kernels& (*)(int64_t width);

// The newest instruction set of the CPU, unless LINREC_INSTRUCTIONS names an older one (for tests).
Selector choose() {
#if LINREC_X86
  const char* named = std::getenv("LINREC_INSTRUCTIONS");
  const auto allowed = [named](const char* name) { return !named || !std::strcmp(named, name); };
  __builtin_cpu_init();
  if (allowed("avx512") && __builtin_cpu_supports("avx512f") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    return avx512::kernels;
  if (allowed("avx2") && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return avx2::kernels;
#endif
  return portable::kernels;
}

}  // namespace

const Kernels& kernels(int64_t width) {
  static const Selector select = choose();
  return select(width);
}

const RepeatKernels& repeat_kernels() {
#if LINREC_X86
  static const Selector select = choose();
  if (select == avx512::kernels) return avx512::repeat_kernels();
  if (select == avx2::kernels) return avx2::repeat_kernels();
#endif
  return portable::repeat_kernels();
}

Rule rule_of(const RuleFields& fields) {
  const auto [feature_map, normaliser, unit_queries, unit_keys, scaled, decay] = fields;
  if (feature_map < 0 || feature_map > static_cast<int>(FeatureMap::elu_plus_one) ||
      normaliser < 0 || normaliser > static_cast<int>(Normaliser::none))
    throw std::invalid_argument("the rule has an unknown feature map or normaliser");
  return {static_cast<FeatureMap>(feature_map), static_cast<Normaliser>(normaliser),
          unit_queries != 0, unit_keys != 0, scaled != 0, decay != 0};
}

namespace {

template <typename Array>
DType dtype_of(const Array& x) {
  if (x.dtype() == nb::dtype<float>()) return DType::float32;
  if (x.dtype() == nb::dlpack::dtype{4, 16, 1}) return DType::bfloat16;  // 4: kDLBfloat
  throw std::invalid_argument("the kernels take float32 and bfloat16");
}

// What both passes have in common. Checks everything that memory safety depends on.
struct Call {
  Problem p{};
  std::vector<int32_t> positions;
  std::vector<int64_t> counts, starts;

  Call(const RuleFields& rule, const Tensor& q, const std::optional<Keep>& keep,
       const std::optional<Decay>& decay, bool causal) {
    p.batch = q.shape(0), p.heads = q.shape(1), p.length = q.shape(2), p.width = q.shape(3);
    if (p.width < 1 || p.width > MAX_WIDTH || p.length > INT32_MAX)
      throw std::invalid_argument("the kernels take widths from 1 to 128, and lengths of 31 bits");
    p.dtype = dtype_of(q);
    p.rule = rule_of(rule);
    p.causal = causal;
    if (decay && static_cast<int64_t>(decay->shape(0)) != p.heads)
      throw std::invalid_argument("decay must have one number per head");
    if (decay && (!p.rule.decay || p.rule.normaliser != Normaliser::column_norm))
      throw std::invalid_argument("the kernels decay only rules with column norms that say so");
    if (decay) p.decay = decay->data();
    if (keep) keep_only(*keep);
  }

  void keep_only(const Keep& keep) {
    if (static_cast<int64_t>(keep.shape(0)) != p.batch ||
        static_cast<int64_t>(keep.shape(1)) != p.length)
      throw std::invalid_argument("keep must be [batch, length]");
    p.keep = keep.data();
    counts.resize(p.batch);
    starts.resize(p.batch);
    for (int64_t b = 0; b < p.batch; ++b) {
      const bool *row = p.keep + b * p.length, *end = row + p.length;
      const bool* first = std::find(row, end, true);
      counts[b] = std::count(first, end, true);
      const bool contiguous = std::find(first, end, false) - first == counts[b];
      starts[b] = contiguous ? first - row : -1;  // padded at the ends, like most batches
      if (contiguous) continue;
      positions.resize(p.batch * p.length);
      int32_t* next = positions.data() + b * p.length;
      for (int64_t t = 0; t < p.length; ++t)
        if (row[t]) *next++ = static_cast<int32_t>(t);
    }
    p.counts = counts.data(), p.starts = starts.data(), p.positions = positions.data();
  }

  Rows rows(const Tensor& x) const {
    const int64_t shape[] = {p.batch, p.heads, p.length, p.width};
    for (int i = 0; i < 4; ++i)
      if (static_cast<int64_t>(x.shape(i)) != shape[i])
        throw std::invalid_argument("all tensors must have the shape of q");
    if (dtype_of(x) != p.dtype) throw std::invalid_argument("all tensors must have q's dtype");
    if (p.width > 1 && x.stride(3) != 1)
      throw std::invalid_argument("the last dimension must be contiguous");
    return {static_cast<char*>(x.data()), x.stride(0), x.stride(1), x.stride(2)};
  }

  void run(Pass Kernels::*which, int threads) {
    const Pass& pass = kernels(p.width).*which;
    struct Context {
      const Problem& p;
      const Pass& pass;
      int64_t floats;
    } context{p, pass, pass.scratch(p)};
    const nb::gil_scoped_release released;
    const int64_t work = p.batch * p.heads * p.length * p.width * p.width;
    parallel_for(p.batch * p.heads, useful_threads(threads, work), [](void* given, int64_t i) {
      const Context& c = *static_cast<const Context*>(given);
      thread_local std::vector<float> scratch;
      const size_t size = c.floats + ALIGNMENT / sizeof(float);
      if (scratch.size() < size) scratch.resize(size);
      const auto address = reinterpret_cast<uintptr_t>(scratch.data());
      const size_t skipped = (ALIGNMENT - address % ALIGNMENT) % ALIGNMENT / sizeof(float);
      c.pass.run(c.p, i / c.p.heads, i % c.p.heads, scratch.data() + skipped, c.floats);
    }, &context);
  }
};

void forward(const RuleFields& rule, const Tensor& q, const Tensor& k, const Tensor& v,
             const std::optional<Keep>& keep, const std::optional<Decay>& decay, bool causal,
             int threads, const Tensor& out) {
  Call call(rule, q, keep, decay, causal);
  call.p.q = call.rows(q), call.p.k = call.rows(k), call.p.v = call.rows(v);
  call.p.out = call.rows(out);
  call.run(&Kernels::forward, threads);
}

void backward(const RuleFields& rule, const Tensor& q, const Tensor& k, const Tensor& v,
              const std::optional<Keep>& keep, const std::optional<Decay>& decay, bool causal,
              int threads, const Tensor& dout, const Tensor& dq, const Tensor& dk,
              const Tensor& dv, const std::optional<DecayGradient>& ddecay) {
  Call call(rule, q, keep, decay, causal);
  Problem& p = call.p;
  p.q = call.rows(q), p.k = call.rows(k), p.v = call.rows(v);
  p.dout = call.rows(dout), p.dq = call.rows(dq), p.dk = call.rows(dk), p.dv = call.rows(dv);
  if (ddecay) {
    if (!decay || static_cast<int64_t>(ddecay->shape(0)) != p.batch ||
        static_cast<int64_t>(ddecay->shape(1)) != p.heads)
      throw std::invalid_argument("the decay's gradient must be [batch, heads]");
    p.ddecay = ddecay->data();
  }
  call.run(&Kernels::backward, threads);
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
             const Flat& out) {
  const int64_t size = x.shape(0);
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
            {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), threshold, scale},
            kernels(8).dropout};
  const nb::gil_scoped_release released;
  const int64_t pieces = (size + PIECE - 1) / PIECE;
  parallel_for(pieces, useful_threads(threads, size), [](void* given, int64_t i) {
    const Context& c = *static_cast<const Context*>(given);
    c.work(c.x, c.out, c.dtype, i * PIECE, std::min((i + 1) * PIECE, c.size), c.draw);
  }, &context);
}

// Past items of some targets. Checks everything that memory safety depends on.
struct Repeats {
  Past past{};
  std::vector<int64_t> starts;
  int64_t targets, pairs = 0;

  Repeats(const Decay& rates, int64_t in_events, const Counts& sums, const Indices& places,
          const std::optional<Seconds>& times, const Indices& newest, const Indices& counts,
          const Indices& ends, const std::optional<Seconds>& moments)
      : targets(counts.shape(0)) {
    const auto size = [](const auto& x) { return static_cast<int64_t>(x.shape(0)); };
    const int64_t rows = size(sums);
    past.half_lives = sums.shape(1), past.in_events = in_events;
    if (past.half_lives > MAX_HALF_LIVES || size(rates) != past.half_lives || in_events < 0 ||
        in_events > past.half_lives || (!times && in_events < past.half_lives))
      throw std::invalid_argument("there must be one rate per count, and times if some need them");
    if (size(places) != rows || size(ends) != targets || times.has_value() != moments.has_value() ||
        (times && (size(*times) != rows || size(*moments) != targets)))
      throw std::invalid_argument("events and targets must each have tensors of one size");
    starts.resize(targets);
    for (int64_t t = 0; t < targets; ++t) {
      if (counts.data()[t] < 0) throw std::invalid_argument("a count is negative");
      starts[t] = pairs;
      pairs += counts.data()[t];
    }
    if (size(newest) != pairs) throw std::invalid_argument("counts must add up to the pairs");
    for (int64_t i = 0; i < pairs; ++i)
      if (newest.data()[i] < 0 || newest.data()[i] >= rows)
        throw std::invalid_argument("newest must be rows of the events");
    past.rates = rates.data(), past.sums = sums.data(), past.places = places.data();
    past.newest = newest.data(), past.starts = starts.data(), past.counts = counts.data();
    past.ends = ends.data();
    if (times) past.times = times->data(), past.moments = moments->data();
  }

  int threads(int available) const { return useful_threads(available, pairs * past.half_lives); }
};

// What each pair gains: weights [T, 1 + K] to values [P].
void repeat_gains(const Decay& rates, int64_t in_events, const Counts& sums, const Indices& places,
                  const std::optional<Seconds>& times, const Indices& newest,
                  const Indices& counts, const Indices& ends, const std::optional<Seconds>& moments,
                  const Counts& weights, int threads, const Vector& values) {
  const Repeats given(rates, in_events, sums, places, times, newest, counts, ends, moments);
  const int64_t columns = 1 + given.past.half_lives;
  if (static_cast<int64_t>(weights.shape(0)) != given.targets ||
      static_cast<int64_t>(weights.shape(1)) != columns ||
      static_cast<int64_t>(values.shape(0)) != given.pairs)
    throw std::invalid_argument("weights must be [targets, 1 + counts], values [pairs]");
  struct Context {
    const Past& past;
    const float* weights;
    float* values;
    int64_t columns;
    decltype(RepeatKernels::gains) work;
  } context{given.past, weights.data(), values.data(), columns, repeat_kernels().gains};
  const nb::gil_scoped_release released;
  parallel_for(given.targets, given.threads(threads), [](void* work, int64_t t) {
    const Context& c = *static_cast<const Context*>(work);
    c.work(c.past, t, c.weights + t * c.columns, c.values + c.past.starts[t]);
  }, &context);
}

// The gradient of the weights [T, 1 + K] from that of the values [P].
void repeat_to_weights(const Decay& rates, int64_t in_events, const Counts& sums,
                       const Indices& places, const std::optional<Seconds>& times,
                       const Indices& newest, const Indices& counts, const Indices& ends,
                       const std::optional<Seconds>& moments, const Decay& gradient, int threads,
                       const Matrix& weights) {
  const Repeats given(rates, in_events, sums, places, times, newest, counts, ends, moments);
  const int64_t columns = 1 + given.past.half_lives;
  if (static_cast<int64_t>(weights.shape(0)) != given.targets ||
      static_cast<int64_t>(weights.shape(1)) != columns ||
      static_cast<int64_t>(gradient.shape(0)) != given.pairs)
    throw std::invalid_argument("weights must be [targets, 1 + counts], the gradient [pairs]");
  struct Context {
    const Past& past;
    const float* gradient;
    float* weights;
    int64_t columns;
    decltype(RepeatKernels::to_weights) work;
  } context{given.past, gradient.data(), weights.data(), columns, repeat_kernels().to_weights};
  const nb::gil_scoped_release released;
  parallel_for(given.targets, given.threads(threads), [](void* work, int64_t t) {
    const Context& c = *static_cast<const Context*>(work);
    c.work(c.past, t, c.gradient + c.past.starts[t], c.weights + t * c.columns);
  }, &context);
}

}  // namespace
}  // namespace linrec

NB_MODULE(_native, module) {
  module.attr("MAX_WIDTH") = linrec::MAX_WIDTH;
  module.def("instructions", [] { return linrec::kernels(8).name; });
  module.def("forward", &linrec::forward, nb::arg(), nb::arg(), nb::arg(), nb::arg(),
             nb::arg().none(), nb::arg().none(), nb::arg(), nb::arg(), nb::arg());
  module.def("backward", &linrec::backward, nb::arg(), nb::arg(), nb::arg(), nb::arg(),
             nb::arg().none(), nb::arg().none(), nb::arg(), nb::arg(), nb::arg(), nb::arg(),
             nb::arg(), nb::arg(), nb::arg().none());
  linrec::define_step_model(module);
  module.def("dropout", &linrec::dropout);
  module.def("cross_entropy", &linrec::cross_entropy, nb::arg(), nb::arg(), nb::arg().none(),
             nb::arg(), nb::arg(), nb::arg(), nb::arg());
  module.attr("NORM_ROWS") = linrec::NORM_ROWS;
  module.def("head_norm", &linrec::head_norm);
  module.def("head_norm_backward", &linrec::head_norm_backward);
  module.def("repeat_gains", &linrec::repeat_gains, nb::arg(), nb::arg(), nb::arg(), nb::arg(),
             nb::arg().none(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg(),
             nb::arg(), nb::arg());
  module.def("repeat_to_weights", &linrec::repeat_to_weights, nb::arg(), nb::arg(), nb::arg(),
             nb::arg(), nb::arg().none(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none(),
             nb::arg(), nb::arg(), nb::arg());
}
