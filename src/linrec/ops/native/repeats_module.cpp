// linrec.ops._native: what past items gain, for Python.
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <vector>

#include "bindings.hpp"
#include "parallel_for.hpp"

namespace nb = nanobind;

namespace linrec {
namespace {

using Matrix = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Vector = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Decay = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Indices = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Seconds = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Counts = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

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

void define_repeats(nb::module_& module) {
  module.def("repeat_gains", &repeat_gains, nb::arg(), nb::arg(), nb::arg(), nb::arg(),
             nb::arg().none(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg(),
             nb::arg(), nb::arg());
  module.def("repeat_to_weights", &repeat_to_weights, nb::arg(), nb::arg(), nb::arg(),
             nb::arg(), nb::arg().none(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none(),
             nb::arg(), nb::arg(), nb::arg());
}

}  // namespace linrec
