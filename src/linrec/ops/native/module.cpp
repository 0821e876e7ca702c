// linrec.ops._native: the kernels for Python. Tensors come by DLPack; nothing here knows torch.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "problem.hpp"
#include "team.hpp"

namespace nb = nanobind;

namespace linrec {

namespace portable { const Kernels& kernels(int64_t width); }
#if LINREC_X86
namespace avx2 { const Kernels& kernels(int64_t width); }
namespace avx512 { const Kernels& kernels(int64_t width); }
#endif

namespace {

using Tensor = nb::ndarray<nb::ndim<4>, nb::device::cpu>;
using Keep = nb::ndarray<const bool, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Decay = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Matrix = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Vector = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using DecayGradient = nb::ndarray<double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// fewer multiplications than this are done sooner than another thread has woken
constexpr int64_t WORTH_A_THREAD = 1 << 18;

// numbers that a thread takes at a time where each is on its own
constexpr int64_t PIECE = 1 << 14;

using Choice = const Kernels& (*)(int64_t width);

// The newest that the CPU has, unless LINREC_INSTRUCTIONS names an older one: to test that.
Choice chosen() {
#if LINREC_X86
  const char* named = std::getenv("LINREC_INSTRUCTIONS");
  const auto open = [named](const char* name) { return !named || !std::strcmp(named, name); };
  __builtin_cpu_init();
  if (open("avx512") && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return avx512::kernels;
  if (open("avx2") && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return avx2::kernels;
#endif
  return portable::kernels;
}

const Kernels& kernels(int64_t width) {
  static const Choice choice = chosen();
  return choice(width);
}

Rule rule_of(const std::string& mechanism) {
  if (mechanism == "linrec") return {Map::elu, true, false, Divisor::energy};
  if (mechanism == "linrec-without-elu") return {Map::identity, true, false, Divisor::energy};
  if (mechanism == "linrec-without-norm") return {Map::elu, false, false, Divisor::count};
  if (mechanism == "linrec-rowwise") return {Map::elu, true, true, Divisor::none};
  if (mechanism == "linear-transformer") return {Map::elu_plus_one, false, false, Divisor::rows};
  throw std::invalid_argument("no kernel for " + mechanism);
}

Number number_of(const Tensor& x) {
  if (x.dtype() == nb::dtype<float>()) return Number::float32;
  if (x.dtype() == nb::dlpack::dtype{4, 16, 1}) return Number::bfloat16;  // 4: kDLBfloat
  throw std::invalid_argument("the kernels take float32 and bfloat16");
}

// What is common to both directions. Checks all that memory safety rests on.
struct Call {
  Problem p{};
  std::vector<int32_t> places;
  std::vector<int64_t> counts, starts;

  Call(const std::string& mechanism, const Tensor& q, const std::optional<Keep>& keep,
       const std::optional<Decay>& decay, bool causal) {
    p.batch = q.shape(0), p.heads = q.shape(1), p.length = q.shape(2), p.width = q.shape(3);
    if (p.width < 1 || p.width > WIDEST || p.length > INT32_MAX)
      throw std::invalid_argument("the kernels take widths from 1 to 128");
    p.number = number_of(q);
    p.rule = rule_of(mechanism);
    p.causal = causal;
    if (decay && static_cast<int64_t>(decay->shape(0)) != p.heads)
      throw std::invalid_argument("one decay a head");
    if (decay && p.rule.divisor != Divisor::energy)
      throw std::invalid_argument("no decay for " + mechanism);
    if (decay) p.decay = decay->data();
    if (keep) keep_only(*keep);
  }

  void keep_only(const Keep& keep) {
    if (static_cast<int64_t>(keep.shape(0)) != p.batch || static_cast<int64_t>(keep.shape(1)) != p.length)
      throw std::invalid_argument("keep must be [batch, length]");
    p.keep = keep.data();
    counts.resize(p.batch);
    starts.resize(p.batch);
    for (int64_t b = 0; b < p.batch; ++b) {
      const bool *row = p.keep + b * p.length, *end = row + p.length;
      const bool* first = std::find(row, end, true);
      counts[b] = std::count(first, end, true);
      const bool one_run = std::find(first, end, false) - first == counts[b];
      starts[b] = one_run ? first - row : -1;  // padding at the ends, as batches have it
      if (one_run) continue;
      places.resize(p.batch * p.length);
      int32_t* next = places.data() + b * p.length;
      for (int64_t t = 0; t < p.length; ++t)
        if (row[t]) *next++ = static_cast<int32_t>(t);
    }
    p.counts = counts.data(), p.starts = starts.data(), p.places = places.data();
  }

  Rows rows(const Tensor& x) const {
    const int64_t shape[] = {p.batch, p.heads, p.length, p.width};
    for (int i = 0; i < 4; ++i)
      if (static_cast<int64_t>(x.shape(i)) != shape[i])
        throw std::invalid_argument("all tensors must have the shape of q");
    if (number_of(x) != p.number) throw std::invalid_argument("all tensors must have q's dtype");
    if (p.width > 1 && x.stride(3) != 1)
      throw std::invalid_argument("the last dimension must be contiguous");
    return {static_cast<char*>(x.data()), x.stride(0), x.stride(1), x.stride(2)};
  }

  void run(void (*Kernels::*direction)(const Problem&, int64_t, int64_t, float*), int threads) {
    struct Context {
      const Problem& p;
      const Kernels& kernels;
      decltype(direction) which;
    } context{p, kernels(p.width), direction};
    const nb::gil_scoped_release released;
    const int64_t work = p.batch * p.heads * p.length * p.width * p.width;
    const int worth = static_cast<int>(std::min<int64_t>(threads, 1 + work / WORTH_A_THREAD));
    share(p.batch * p.heads, worth, [](void* given, int64_t i) {
      const Context& c = *static_cast<const Context*>(given);
      thread_local std::vector<float> scratch;
      const size_t size = c.kernels.scratch(c.p) + 16;
      if (scratch.size() < size) scratch.resize(size);
      const auto address = reinterpret_cast<uintptr_t>(scratch.data());
      float* aligned = scratch.data() + (64 - address % 64) % 64 / sizeof(float);
      (c.kernels.*c.which)(c.p, i / c.p.heads, i % c.p.heads, aligned);
    }, &context);
  }
};

void forward(const std::string& mechanism, const Tensor& q, const Tensor& k, const Tensor& v,
             const std::optional<Keep>& keep, const std::optional<Decay>& decay, bool causal,
             int threads, const Tensor& out) {
  Call call(mechanism, q, keep, decay, causal);
  call.p.q = call.rows(q), call.p.k = call.rows(k), call.p.v = call.rows(v);
  call.p.out = call.rows(out);
  call.run(&Kernels::forward, threads);
}

void backward(const std::string& mechanism, const Tensor& q, const Tensor& k, const Tensor& v,
              const std::optional<Keep>& keep, const std::optional<Decay>& decay, bool causal,
              int threads, const Tensor& dout, const Tensor& dq, const Tensor& dk,
              const Tensor& dv, const std::optional<DecayGradient>& ddecay) {
  Call call(mechanism, q, keep, decay, causal);
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

// Each row of scores becomes exp(score - largest), and whole its sum.
void exponentials(const Matrix& scores, int threads, const Vector& largest, const Vector& whole) {
  const int64_t rows = scores.shape(0), size = scores.shape(1);
  if (static_cast<int64_t>(largest.shape(0)) != rows || static_cast<int64_t>(whole.shape(0)) != rows)
    throw std::invalid_argument("one largest and one whole a row");
  struct Context {
    float *scores, *largest, *whole;
    int64_t size;
    decltype(Kernels::exponentials) work;
  } context{scores.data(), largest.data(), whole.data(), size, kernels(8).exponentials};
  const nb::gil_scoped_release released;
  const int worth = static_cast<int>(std::min<int64_t>(threads, 1 + rows * size / WORTH_A_THREAD));
  share(rows, worth, [](void* given, int64_t i) {
    const Context& c = *static_cast<const Context*>(given);
    c.work(c.scores + i * c.size, c.size, c.largest + i, c.whole + i);
  }, &context);
}

void dropout(const Vector& x, uint64_t seed, int dropped, float scale, int threads,
             const Vector& to) {
  const int64_t size = x.shape(0);
  if (static_cast<int64_t>(to.shape(0)) != size) throw std::invalid_argument("as many out as in");
  struct Context {
    const float* x;
    float* to;
    int64_t size;
    Draw draw;
    decltype(Kernels::dropout) work;
  } context{x.data(), to.data(), size,
            {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32), dropped, scale},
            kernels(8).dropout};
  const nb::gil_scoped_release released;
  const int worth = static_cast<int>(std::min<int64_t>(threads, 1 + size / WORTH_A_THREAD));
  share((size + PIECE - 1) / PIECE, worth, [](void* given, int64_t i) {
    const Context& c = *static_cast<const Context*>(given);
    c.work(c.x, c.to, i * PIECE, std::min((i + 1) * PIECE, c.size), c.draw);
  }, &context);
}

}  // namespace
}  // namespace linrec

NB_MODULE(_native, module) {
  module.attr("WIDEST") = linrec::WIDEST;
  module.def("instructions", [] { return linrec::kernels(8).name; });
  module.def("forward", &linrec::forward, nb::arg(), nb::arg(), nb::arg(), nb::arg(),
             nb::arg().none(), nb::arg().none(), nb::arg(), nb::arg(), nb::arg());
  module.def("backward", &linrec::backward, nb::arg(), nb::arg(), nb::arg(), nb::arg(),
             nb::arg().none(), nb::arg().none(), nb::arg(), nb::arg(), nb::arg(), nb::arg(),
             nb::arg(), nb::arg(), nb::arg().none());
  module.def("dropout", &linrec::dropout);
  module.def("exponentials", &linrec::exponentials);
}
