// linrec.ops._native: the kernels for Python. Tensors come by DLPack; nothing here knows torch.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <vector>

#include "bindings.hpp"
#include "parallel_for.hpp"
#include "repeats.hpp"

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
using DecayGradient = nb::ndarray<double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

constexpr size_t ALIGNMENT = 64;  // bytes: a cache line, and the widest register

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
  linrec::define_rows(module);
  linrec::define_repeats(module);
}
